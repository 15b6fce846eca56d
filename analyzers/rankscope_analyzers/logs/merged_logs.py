"""Merges the logs of a job's ranks in order of time: pure, in bounded memory.

Time stamps come from the runtime (CRI, `kubectl logs --timestamps`) or from the program itself, in
any time zone. A line without one stays with the line before it; a log without any comes first, in
its own order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.log_text.prefixes import split, unix_seconds

STAMP_BYTES = 80
"""How far into a line's message its time may be: after a level and a logger's name."""

MAX_LINE = 4096
"""Bytes of a line that are shown."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one log.

    Args:
        at: Unix time; None before the first stamp of a log.
        source: name of the log.
        rank: the writer according to the line's tag, None without one.
        text: the message without the prefixes of launchers and runtimes.
    """

    at: float | None
    source: str
    rank: int | None
    text: str


def merged(logs: Mapping[str, Iterable[bytes]]) -> Iterator[LogLine]:
    """Yield the lines of all logs by their times; equal times in the order of the logs.

    One line of each log is held at a time. A log whose clock goes back keeps its own order.

    Args:
        logs: chunks of bytes of each, by name.
    """
    streams = [
        _timed(number, lines(name, chunks)) for number, (name, chunks) in enumerate(logs.items())
    ]
    for _, _, _, line in heapq.merge(*streams, key=lambda one: one[:3]):
        yield line


def lines(source: str, chunks: Iterable[bytes]) -> Iterator[LogLine]:
    """Yield the lines of one log, each with its time or that of the line before it."""
    framing = Unframer()
    at: float | None = None
    for chunk in chunks:
        for raw in framing.feed(chunk).split(b"\n")[:-1]:
            line = _read(source, raw, at)
            at = line.at
            yield line
    for raw in framing.finish().split(b"\n"):
        if raw:
            yield _read(source, raw, at)


def _read(source: str, raw: bytes, before: float | None) -> LogLine:
    prefix, words = split(raw[:MAX_LINE])
    at = prefix.time
    if at is None:
        at = unix_seconds(words[:STAMP_BYTES])
    rank = None if prefix.local else prefix.rank
    text = words.rpartition(b"\r")[2] if b"\r" in words.rstrip(b"\r") else words
    return LogLine(
        before if at is None else at, source, rank, text.decode(errors="replace").rstrip()
    )


def _timed(number: int, log: Iterable[LogLine]) -> Iterator[tuple[float, int, int, LogLine]]:
    latest = float("-inf")
    for index, line in enumerate(log):
        if line.at is not None:
            latest = max(latest, line.at)
        yield latest, number, index, line
