"""Explains NCCL logs: reads a job's files and reports what NCCL and PyTorch's watchdogs wrote."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_analyzers.intake.log_files import LogError, Tell, chunks, tell_user
from rankscope_analyzers.logs import nccl_report
from rankscope_analyzers.logs.nccl_findings import findings
from rankscope_analyzers.logs.not_read import not_read_lines
from rankscope_analyzers.logs.recognised import is_text
from rankscope_analyzers.logs.watchdog_suspects import suspects
from rankscope_analyzers.text.sanitize import visible


def read(names: Iterable[str]) -> Facts:
    """Return the facts of a job's logs.

    Raises:
        LogError: a file cannot be read.
    """
    return _read_all(names, tell_user)[0]


def _of_text(names: Sequence[str], tell: Tell) -> Facts:
    """Return the facts of logs of which at least one has text: an empty file shows no health.

    Args:
        names: of the files.
        tell: is told which compressed logs are damaged or cut off.

    Raises:
        LogError: a file cannot be read, or none has any text.
    """
    facts, text = _read_all(names, tell)
    if not text:
        raise LogError(f"no line of text, so nothing is known: {visible(', '.join(names))}")
    return facts


def _read_all(names: Iterable[str], tell: Tell) -> tuple[Facts, bool]:
    """Return the facts of logs, and whether any of these has text."""
    parser, text = NcclLog(), False
    # Facts hold no cycles, and the collector's search for some takes two fifths of the time on a
    # large job's log. Frozen, they are skipped until the command ends, which searches once more.
    gc.disable()
    try:
        for name in names:
            text = _read_one(name, parser, tell) or text
    finally:
        gc.freeze()
        gc.enable()
    parser.sum_up()
    return parser.facts, text


MAX_WRAPPED_BYTES = 4 << 20
"""Logs up to this size are examined for what happens to pasted text: no one pastes so much."""

MAX_STRIPPED_BYTES = 1 << 20
"""Logs up to this size are read again if they hold no `NCCL INFO`: people cut it off, and what they
paste is short."""


def _read_one(name: str, parser: NcclLog, tell: Tell) -> bool:
    """Read a log; return True if it has any text."""
    framing = Unframer()
    texts = _plain(chunks(name, tell=tell), framing)
    opening = list(_first(texts, MAX_WRAPPED_BYTES))
    if sum(map(len, opening)) < MAX_WRAPPED_BYTES:
        opening = _mended(opening)
    for text in opening:
        parser.feed(text)
    start = b"" if parser.facts.informed else b"".join(opening)[:MAX_STRIPPED_BYTES]
    has_text = any(map(is_text, opening))
    opening.clear()
    for text in texts:
        has_text = has_text or is_text(text)
        parser.feed(text)
    if not parser.facts.informed:
        parser.feed(_restored(start))
    parser.facts.unparsed += framing.oversized
    return has_text


def _mended(texts: list[bytes]) -> list[bytes]:
    """Return a short log as NCCL wrote it; what this takes is not loaded for a long one."""
    from rankscope_analyzers.logs import mended_paste

    pasted = b"".join(texts)
    mended = mended_paste.mended(pasted)
    return texts if mended is pasted else [mended]


def _restored(text: bytes) -> bytes:
    from rankscope_analyzers.logs import mended_paste

    return mended_paste.restored(text)


def _plain(pieces: Iterable[bytes], framing: Unframer) -> Iterator[bytes]:
    """Yield a log without the wrapping that log pipelines add to its lines."""
    for chunk in pieces:
        yield framing.feed(chunk)
    yield framing.finish()


def _first(texts: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield texts until they have reached some size together."""
    for text in texts:
        yield text
        size -= len(text)
        if size <= 0:
            return


class NcclExplanation:
    """What NCCL wrote in a job's logs."""

    def __init__(self, files: Sequence[str]) -> None:
        self._not_read: list[str] = []
        self._facts = _of_text(files, self._not_read.append)
        self._verdict = judge(self._facts)
        self._findings = findings(self._facts, self._verdict)

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        shown = nccl_report.as_object(self._facts, self._verdict, self._findings)
        return shown | {"not_read": self._not_read}

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        shown = nccl_report.lines(self._facts, self._verdict, self._findings)
        return chain(shown, not_read_lines(self._not_read))


class WatchdogExplanation:
    """What PyTorch's watchdogs wrote in a job's logs."""

    def __init__(self, files: Sequence[str]) -> None:
        self._not_read: list[str] = []
        self._facts = _of_text(files, self._not_read.append)
        self._suspects = suspects(self._facts)

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        shown = nccl_report.suspects_object(self._facts, self._suspects)
        return shown | {"not_read": self._not_read}

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        shown = nccl_report.suspects_lines(self._facts, self._suspects)
        return chain(shown, not_read_lines(self._not_read))
