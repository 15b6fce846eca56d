"""The tracebacks that the writers of one log have begun: each line goes to that of its writer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rankscope_agent.contract.failures.signs import SignLocation
from rankscope_agent.contract.failures.tracebacks import (
    START,
    ParsedError,
    TracebackReader,
    is_frame,
)
from rankscope_agent.contract.log_text.learned_prefixes import LearnedPrefixes, text_in_json
from rankscope_agent.contract.log_text.prefixes import Prefix

MAX_SILENCE = 20_000
"""Lines after which an unfinished traceback is ended: those of 64 ranks with 300 lines each."""

_LAUNCHERS = re.compile(
    rb"(?:srun|slurmstepd|mpirun|mpiexec|prterun|pdsh@[\w.-]{1,255}): "
    rb"|[EW]\d{4} [^\]\n]{1,200}\] failed \(exitcode: "
)
"""A launcher's own line, of no traceback even if it looks like the last line of an exception."""

_GROUP = re.compile(rb"[+|] Exception Group (?=Traceback )")
"""Precedes the first line of an exception group; a bar precedes its others."""

_START = START.encode()

Add = Callable[[ParsedError | None, SignLocation, bytes], None]


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its prefixes.

    Args:
        prefix: all of them.
        around: the writer by the known prefixes alone.
        learned: the one that was learnt from a traceback; empty without one.
        words: the line's own.
    """

    prefix: Prefix
    around: bytes
    learned: bytes
    words: bytes


class OpenTracebacks:
    """Reads the tracebacks of one log.

    Args:
        add: receives each that is complete, where it began, and its writer.
        writers: that are distinguished.
        tagged: whether the log has a single writer.
    """

    def __init__(self, add: Add, writers: int, *, tagged: bool) -> None:
        self._add = add
        self._writers = writers
        self._tagged = tagged
        self._readers: dict[bytes, tuple[TracebackReader, SignLocation]] = {}
        self._open: set[bytes] = set()
        self._learned = LearnedPrefixes()
        self._begun: dict[bytes, Line] = {}

    @property
    def is_open(self) -> bool:
        """Return True if more lines may belong to a traceback."""
        return bool(self._open)

    def line(self, prefix: Prefix, words: bytes) -> Line:
        """Take off what precedes the tracebacks of this log, besides the known prefixes."""
        words = _GROUP.sub(b"| ", words)
        line = self._line(prefix, words)
        begin = -1 if line.learned else words.find(_START)
        before = words[: max(begin, 0)]
        if not before.strip() or before.endswith(b"Original "):
            return line
        if _START in (text_in_json(words) or b""):
            self._learned.read_json()
            return self._line(prefix, words)
        self._learned.learn(before)
        line = self._line(prefix, words)
        if line.learned:
            self._begun[line.around] = line
        return line

    def _line(self, prefix: Prefix, words: bytes) -> Line:
        learned, inner, own = self._learned.split(words)
        if not learned:
            return Line(prefix, prefix.writer, b"", words)
        rank, local = prefix.rank, prefix.local
        if inner.rank is not None:
            rank, local = inner.rank, inner.local
        time = inner.time if prefix.time is None else prefix.time
        writer = b"|".join((prefix.writer, learned, inner.writer))
        return Line(Prefix(writer, rank, local, time), prefix.writer, learned, own)

    def feed(self, line: Line, location: SignLocation) -> bool:
        """Process a line; return True if it belongs to its writer's traceback."""
        if not self._open and _START not in line.words:
            return False
        if _LAUNCHERS.match(line.words):
            return False
        text = line.words.decode(errors="replace").rstrip()
        writer = line.prefix.writer
        starts = START in text
        if not starts:
            self._settle_prefix(line, text)
        reader, began = self._readers.get(writer, (None, location))
        if reader is None:
            if not starts or len(self._readers) >= self._writers:
                return False
            reader = TracebackReader(tagged=self._tagged or bool(writer))
            self._readers[writer] = (reader, location)
        self._add(reader.feed(text), began, writer)
        if starts and reader.is_fresh:
            self._readers[writer] = (reader, location)
        (self._open.add if reader.is_open else self._open.discard)(writer)
        return starts or reader.is_open

    def _settle_prefix(self, line: Line, text: str) -> None:
        """Find out if the text before a traceback was a message: then its frames do not have it."""
        begun = self._begun.get(line.around)
        if begun is None:
            return
        writer, own = begun.prefix.writer, line.prefix.writer
        if line.learned:
            if own == writer:
                del self._begun[line.around]
        elif is_frame(text) and not (own in self._open and self._readers[own][0].in_frames):
            del self._begun[line.around]
            self._learned.forget(begun.learned)
            self._open.discard(writer)
            known = self._readers.pop(writer, None)
            if known is not None:
                self._restart(own, known[1])

    def _restart(self, writer: bytes, began: SignLocation) -> None:
        """Read a traceback, of which there is only the first line, as that of another writer."""
        earlier, location = self._readers.get(writer, (None, began))
        if earlier is not None:
            self._add(earlier.finish(), location, writer)
        reader = TracebackReader(tagged=self._tagged or bool(writer))
        reader.feed(START)
        self._readers[writer] = (reader, began)
        self._open.add(writer)

    def close_old(self, line: int) -> None:
        """End the tracebacks of writers that have been silent until this line."""
        for writer in list(self._open):
            reader, location = self._readers[writer]
            if location.line < line - MAX_SILENCE:
                self._add(reader.finish(), location, writer)
                self._open.discard(writer)

    def finish(self) -> None:
        """End all of them: the log ends."""
        for writer, (reader, location) in self._readers.items():
            self._add(reader.finish(), location, writer)
        self._readers.clear()
        self._open.clear()
