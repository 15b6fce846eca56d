"""Finds signs of failure in the logs of a job, chunk by chunk: bytes in, `FailureSigns` out.

This module draws no conclusions (`verdict` does). A chunk that contains none of a few words is
skipped unless a traceback is open.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, replace

from rankscope_agent.contract.failures import causes, error_files
from rankscope_agent.contract.failures.complaints import read_complaint, read_echo
from rankscope_agent.contract.failures.marks import MARKS
from rankscope_agent.contract.failures.messages import (
    LAUNCHER,
    Meaning,
    classify_exit,
)
from rankscope_agent.contract.failures.open_tracebacks import OpenTracebacks
from rankscope_agent.contract.failures.platform_messages import classify_line
from rankscope_agent.contract.failures.ray_train import (
    RayTrain,
    is_controller,
    is_death,
    is_repeated,
)
from rankscope_agent.contract.failures.signs import (
    MAX_TEXT,
    FailureSign,
    FailureSigns,
    Kind,
    RankEnd,
    SignLocation,
)
from rankscope_agent.contract.failures.summaries import TableReader, read_end
from rankscope_agent.contract.failures.survival import Survival, step_of
from rankscope_agent.contract.failures.tracebacks import (
    CUT_OFF,
    ParsedError,
    is_escaped,
    read,
    unescaped,
)
from rankscope_agent.contract.log_text.prefixes import MAX_RANK, Prefix, split


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """Limits on what is kept of one job.

    Args:
        signs: the default allows for a launcher's line and a traceback for each of 8,192 ranks.
        writers: distinguished in one log.
        error_files: whether a log may be an error file, which is kept in full and read at its end.
        survival: whether lines about steps after an exception show that it was survived; followers
            of a log count steps themselves.
    """

    signs: int = 20_000
    writers: int = 20_000
    error_files: bool = True
    survival: bool = True


WHOLE_JOB = FailureLimits()
"""For all logs of the largest jobs, read in one go."""

MAX_LINE = 4096
"""Bytes of a line that are examined."""

MAX_ESCAPED = 256 << 10
"""Bytes examined of a line that contains a whole traceback, as written by loggers that emit
JSON."""

ENDS: frozenset[Kind] = frozenset({"exit", "platform", "echo"})
"""Signs that a process or the job ended."""

_INTEREST = re.compile(b"|".join(re.escape(mark) for mark in MARKS))
_AGENT_END = re.compile(rb"failed \(exitcode: -?\d{1,4}\) local_rank: ")
"""A line that torchrun's agent prints once per attempt."""
_FILE_RANK = re.compile(r"(?:^|[/_.-])rank[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_FILE_ATTEMPT = re.compile(r"attempt_(\d{1,6})/(\d{1,7})/(?:stdout|stderr|error)[^/]*$")
_SPAWNED = re.compile(rb"-- Process (\d{1,7}) terminated with the following error:")


class FailureLog:
    """Reads one log of a job.

    Args:
        source: its name, which may indicate the rank: rank3.log, attempt_0/3/stderr.log.
        signs: where signs are added, shared by all logs of the job.
        limits: limits on what is kept.
        lines: the number of its lines before those that will be fed.
    """

    def __init__(
        self,
        source: str,
        signs: FailureSigns,
        limits: FailureLimits = WHOLE_JOB,
        lines: int = 0,
    ) -> None:
        self._limits = limits
        self._source = source
        self._signs = signs
        self._line = lines
        self._table = TableReader(source)
        self._whole = b""
        by_attempt = _FILE_ATTEMPT.search(source)
        by_rank = _FILE_RANK.search(source.rpartition("/")[2]) or _FILE_RANK.search(source)
        self._attempt = int(by_attempt[1]) if by_attempt else 0
        self._rank = _rank(by_attempt[2] if by_attempt else by_rank[1] if by_rank else None)
        self._rank_is_local = by_attempt is not None
        tagged = self._rank is not None
        self._survival = Survival()
        self._tracebacks = OpenTracebacks(self._add, limits.writers, tagged=tagged)
        self._spawned: int | None = None
        self._ray = RayTrain(limits.writers)
        self._agent_ends: list[int] = []
        self._first = (len(signs.signs), len(signs.ends))

    @property
    def lines(self) -> int:
        """The number of its lines up to the last one that was fed."""
        return self._line

    def feed(self, text: bytes) -> None:
        """Process complete plain lines."""
        if self._line == 0 and self._limits.error_files and text.lstrip()[:1] == b"{":
            self._whole = text[: error_files.MAX_FILE_BYTES + 1]
        elif self._whole and len(self._whole) <= error_files.MAX_FILE_BYTES:
            self._whole += text
        self._tracebacks.close_old(self._line)
        marked = self._is_open() or any(mark in text for mark in MARKS)
        if not marked and not self._survival.is_watching:
            self._line += text.count(b"\n")
            return
        for line in text.replace(b"\r", b"\n").split(b"\n") if b"\r" in text else text.split(b"\n"):
            self._line += 1
            if marked and (self._is_open() or _INTEREST.search(line)):
                self._read(line[: MAX_ESCAPED if is_escaped(line) else MAX_LINE])
            if self._survival.is_watching:
                self._count_step(line[:MAX_LINE])
        self._line -= 1  # the empty part after the last line end is not a line

    def _count_step(self, line: bytes) -> None:
        """Turn the exceptions that its writer has survived by this line into survived ones."""
        step = step_of(line)
        if not step or is_repeated(line):
            return
        writer = self._tracebacks.line(*split(line)).prefix.writer
        for index in self._survival.feed(writer, step):
            sign = self._signs.signs[index]
            meaning = replace(sign.meaning, certain=False)
            self._signs.signs[index] = replace(sign, kind="survived", meaning=meaning)
            self._signs.quote(self._source, sign.location.line, sign.text)

    def finish(self) -> None:
        """Process the end of the log."""
        self._tracebacks.finish()
        self._end(self._table.finish())
        whole = error_files.parse(self._whole)
        if whole is not None:
            rank = self._rank if whole.rank is None else whole.rank
            location = SignLocation(
                self._source, 0, self._attempt, rank, self._rank_is_local, whole.time
            )
            self._add(whole.found, location)
        self._split_attempts()

    def _split_attempts(self) -> None:
        """Separate attempts by the lines with which a launcher ends all but the last of them."""
        limits = sorted((*self._agent_ends[:-1], *self._ray.restarts))
        if not limits:
            return
        signs, ends = self._signs.signs, self._signs.ends
        for index in range(self._first[0], len(signs)):
            sign = signs[index]
            attempt = self._attempt + bisect_left(limits, sign.location.line)
            signs[index] = replace(sign, location=replace(sign.location, attempt=attempt))
        for key, at in self._signs.rank_errors.items():
            if key[0] == self._source:
                attempt = self._attempt + bisect_left(limits, at.line)
                self._signs.rank_errors[key] = replace(at, attempt=attempt)
        for end in ends[self._first[1] :]:
            end.attempt = self._attempt + len(limits)
        self._signs.attempts = max(self._signs.attempts, self._attempt + len(limits))

    def _is_open(self) -> bool:
        return self._table.is_open or self._tracebacks.is_open

    def _read(self, line: bytes) -> None:
        prefix, words = split(line)
        if is_repeated(words) or self._ray.read(prefix.writer, words, self._line):
            return
        location = self._location(prefix)
        if not is_escaped(words):  # but perhaps its prefix
            words = words[:MAX_LINE]
        text = _text(words)
        spawned = _SPAWNED.search(words)
        if spawned is not None:
            self._spawned = _rank(spawned[1])
            return
        if is_escaped(words):
            self._add(read(unescaped(text)), location, prefix.writer)
            return
        own = self._tracebacks.line(prefix, words)
        was_open = self._table.is_open
        self._end(self._table.feed(_text(own.words), self._attempt))
        if was_open or self._table.is_open:
            return
        if own.learned:
            location = self._location(own.prefix)
        if not self._tracebacks.feed(own, location):
            self._read_line(words, location, text)

    def _read_line(self, words: bytes, location: SignLocation, text: str) -> None:
        """Read a line outside of tracebacks."""
        if _AGENT_END.search(words) is not None and len(self._agent_ends) < self._limits.signs:
            self._agent_ends.append(self._line)
        end = read_end(words)
        if end is not None:
            self._add_end(end, location, text, classify_line(words))
            return
        message = text.strip()[:MAX_TEXT]
        meaning = classify_line(words)
        if meaning is not None:
            self._add_sign(FailureSign("platform", meaning, location, message))
            return
        echo = read_echo(words)
        if echo is not None:
            of_rank = is_death(words) and location.rank is not None
            self._add_sign(FailureSign("platform" if of_rank else "echo", echo, location, message))
            return
        self._read_complaint(text, location, message)

    def _read_complaint(self, text: str, location: SignLocation, message: str) -> None:
        """Read an error reported in a single line."""
        complaint = read_complaint(text)
        if complaint is None:
            return
        if not complaint.survived:
            self._signs.report(location)
        if complaint.meaning is None or complaint.survived:
            self._signs.quote(self._source, location.line, message)
        if complaint.meaning is None:
            return
        if location.rank is None and complaint.rank is not None and complaint.rank < MAX_RANK:
            location = replace(location, rank=complaint.rank)
        kind: Kind = "survived" if complaint.survived else "complaint"
        self._add_sign(FailureSign(kind, complaint.meaning, location, message))

    def _location(self, prefix: Prefix) -> SignLocation:
        rank, local = prefix.rank, prefix.local
        if rank is None and self._spawned is not None:
            rank, local = self._spawned, True
        if rank is None:
            rank = self._ray.rank_of(prefix.writer)
        if rank is None:
            rank, local = self._rank, self._rank_is_local
        if rank is not None and not local:
            self._signs.name(rank)
        return SignLocation(self._source, self._line, self._attempt, rank, local, prefix.time)

    def _add(
        self, found: ParsedError | None, location: SignLocation, writer: bytes | None = None
    ) -> None:
        """Add an exception; its writer is given if it can have survived it."""
        if found is None:
            return
        of_launcher = location.rank is None and is_controller(writer or b"")
        if of_launcher or (found.text == CUT_OFF and not found.frame):
            self._signs.quote(self._source, location.line, found.text)
            return
        end = read_end(found.text.encode()) if found.meaning == LAUNCHER else None
        if end is not None:
            self._add_end(end, location, found.text)
        elif found.meaning == LAUNCHER:
            echo = read_echo(found.text.encode())
            if echo is not None:
                self._add_sign(FailureSign("echo", echo, location, found.text))
        else:
            kept = len(self._signs.signs) < self._limits.signs
            counts = kept and self._limits.survival and not found.uncaught
            if writer is not None and counts:
                self._survival.watch(writer, len(self._signs.signs), location.line)
            self._add_sign(
                FailureSign("exception", found.meaning, location, found.text, found.frame)
            )

    def _add_end(
        self,
        end: tuple[int, bool, int],
        location: SignLocation,
        text: str,
        why: Meaning | None = None,
    ) -> None:
        """Record the end of a process; `why` is what else its line means."""
        rank, local, code = end
        at = replace(location, rank=rank, local=local)
        kind: Kind = "exit"
        meaning = classify_exit(code)
        if meaning.cause == causes.KILLED and why is not None and why.certain:
            meaning, kind = why, "platform"  # as Slurm reports who killed it
        self._add_sign(FailureSign(kind, meaning, at, text[:MAX_TEXT], exit_code=code))

    def _add_sign(self, sign: FailureSign) -> None:
        if sign.kind in ENDS:
            self._survival.end(self._line)
        at = sign.location
        others = () if at.rank is None or sign.kind == "echo" else self._ray.others(at.rank)
        for rank in (at.rank, *others):
            if len(self._signs.signs) < self._limits.signs:
                self._signs.signs.append(replace(sign, location=replace(at, rank=rank)))
            else:
                self._signs.beyond_limits += 1

    def _end(self, end: RankEnd | None) -> None:
        """Keep an entry of torchrun's table, with the exception that it quotes."""
        if end is None or end.rank is None:
            return
        if len(self._signs.ends) >= self._limits.signs:
            self._signs.beyond_limits += 1
            return
        self._survival.end(self._line)
        found = read(end.lines) if len(end.lines) > 1 else None
        end.lines = []
        self._signs.ends.append(end)
        self._signs.name(end.rank)
        if found is not None:
            location = SignLocation(self._source, self._line, end.attempt, end.rank, False, None)
            self._add(found, location)


def _text(words: bytes) -> str:
    return words.decode(errors="replace").rstrip()


def _rank(digits: str | bytes | None) -> int | None:
    """Return the rank that these digits stand for; None if no job has it."""
    return None if digits is None or int(digits) >= MAX_RANK else int(digits)
