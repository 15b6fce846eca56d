"""Explains NCCL logs: reads a job's files and reports what NCCL and PyTorch's watchdogs wrote."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_analyzers.intake.log_files import chunks
from rankscope_analyzers.logs import nccl_report
from rankscope_analyzers.logs.hard_wraps import MAX_WRAPPED_BYTES, unwrap
from rankscope_analyzers.logs.nccl_findings import findings
from rankscope_analyzers.logs.pasted_text import plain
from rankscope_analyzers.logs.watchdog_suspects import suspects


def read(names: Iterable[str]) -> Facts:
    """Return the facts of a job's logs.

    Raises:
        LogError: a file cannot be read.
    """
    parser = NcclLog()
    # Facts hold no cycles, and the collector's search for some takes two fifths of the time on a
    # large job's log. Frozen, they are skipped until the command ends, which searches once more.
    gc.disable()
    try:
        for name in names:
            _read_one(name, parser)
    finally:
        gc.freeze()
        gc.enable()
    parser.sum_up()
    return parser.facts


MAX_STRIPPED_BYTES = 1 << 20
"""Logs up to this size are read again if they hold no `NCCL INFO`: people cut it off, and what they
paste is short."""

_STRIPPED = re.compile(
    rb"^[ \t>#]*((?:Channel \d+(?:/\d+)? ?: |Ring \d+ : |comm 0x|ncclComm\w+ comm 0x|Using network "
    rb"|NET/(?:IB|Socket|OFI|Plugin) ?: |Bootstrap ?: |\d+ coll channels|\[(?:send|receive)\] via )"
    rb"[^\n]*)",
    re.MULTILINE,
)
"""Lines of NCCL with a truncated beginning."""


_UNNAMED = re.compile(
    rb"(:\d{1,10}:\d{1,10} \[\d{1,3}\] (?:[\w./-]{1,80}:\d{1,5} )?)((?:INFO|WARN) )"
)
"""host:pid:tid [cudaDev] INFO, the prefix of NCCL's lines up to version 2.2."""


def _read_one(name: str, parser: NcclLog) -> None:
    framing = Unframer()
    texts = _plain(name, framing)
    opening = list(_first(texts, MAX_WRAPPED_BYTES))
    pasted = b"".join(opening)
    whole = len(pasted) < MAX_WRAPPED_BYTES
    mended = _named(unwrap(plain(pasted))) if whole else pasted
    for text in opening if mended is pasted else [mended]:
        parser.feed(text)
    for text in texts:
        parser.feed(text)
    if not parser.facts.informed:
        found = _STRIPPED.findall(mended[:MAX_STRIPPED_BYTES])
        parser.feed(b"".join(b"NCCL INFO %s\n" % line for line in found))
    parser.facts.unparsed += framing.oversized


def _named(text: bytes) -> bytes:
    """Return a log with NCCL's name added to its lines, which had none before 2.3."""
    return text if b"NCCL INFO" in text else _UNNAMED.sub(rb"\1NCCL \2", text)


def _plain(name: str, framing: Unframer) -> Iterator[bytes]:
    """Yield a log without the wrapping that log pipelines add to its lines."""
    for chunk in chunks(name):
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
        self._facts = read(files)
        self._verdict = judge(self._facts)
        self._findings = findings(self._facts, self._verdict)

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return nccl_report.as_object(self._facts, self._verdict, self._findings)

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        return nccl_report.lines(self._facts, self._verdict, self._findings)


class WatchdogExplanation:
    """What PyTorch's watchdogs wrote in a job's logs."""

    def __init__(self, files: Sequence[str]) -> None:
        self._facts = read(files)
        self._suspects = suspects(self._facts)

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return nccl_report.suspects_object(self._facts, self._suspects)

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        return nccl_report.suspects_lines(self._facts, self._suspects)
