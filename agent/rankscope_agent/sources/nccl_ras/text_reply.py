"""Parses RAS's text reply, available since NCCL 2.24.3: pure.

Lines are those of src/ras/client_support.cc. A table counts communicators by their size; below it,
each communicator whose ranks differ has a header `#group-number (hash) MISMATCH` and sentences
about its ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rankscope_agent.sources.nccl_ras.report import (
    ANY_OPERATION,
    Lag,
    RasReplyError,
    RasReport,
    greatest,
    known_operation,
)

# group, communicators in it, nodes, ranks per node, per communicator, in group, status, errors
_ROW = re.compile(
    r"\s*(\d{1,9})\s+(\d{1,9})\s+\d{1,9}\s+\d{1,9}(?:-\d{1,9})?\s+(\d{1,9})\s+\d{1,9}\s+[A-Z/]+\s+\S"
)
_VERSION = re.compile(r"R?NCCL version (\S{1,64})")
_MISSING = re.compile(r"\s+Missing communicator data from (\d{1,9}) ranks?\b")
_DEAD = re.compile(r"\s+(\d{1,9}) job process(?:es)? (?:is|are) considered dead")
_TIMEOUTS = re.compile(r"\s+Encountered (\d{1,9}) communication timeouts?")
_COMMUNICATOR = re.compile(r"#(\d{1,9})-\d{1,9} \(")
_DIFFERENT = re.compile(r"\s+Communicator ranks have different (?:(\w{1,40}) )?operation counts")
_SEVERAL = re.compile(
    r"\s+(\d{1,9}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)"
)
_ONE = re.compile(
    r"\s+Rank (\d{1,9}) has (?:launched up to operation (\d{1,18})|not launched any operations)"
)
_LISTED = re.compile(r"\s+Rank (\d{1,9}) -- GPU ")


def parse(text: str) -> RasReport:
    """Read a reply.

    Raises:
        RasReplyError: it contains no table of communicators.
    """
    if not re.search(r"^Communicators\.\.\.", text, re.MULTILINE):
        raise RasReplyError("has no table of communicators")
    lines = text.splitlines()
    rows = [row for line in lines if (row := _ROW.match(line))]
    sizes = {int(row[1]): int(row[3]) for row in rows}
    version = next((found[1] for line in lines if (found := _VERSION.match(line))), "")
    return RasReport(
        version=version,
        communicators=sum(int(row[2]) for row in rows),
        largest=max(sizes.values(), default=0),
        missing_ranks=_most(_MISSING, lines),
        dead_processes=_most(_DEAD, lines),
        failed_ranks=None,
        timeouts=_most(_TIMEOUTS, lines),
        lags=greatest(_lags(lines, sizes)),
    )


def _most(pattern: re.Pattern[str], lines: Sequence[str]) -> int:
    return max((int(found[1]) for line in lines if (found := pattern.match(line))), default=0)


def _lags(lines: Sequence[str], sizes: Mapping[int, int]) -> Iterator[Lag]:
    """Yield the lag of every block of launches; a sentence opens each block.

    Args:
        lines: of the reply.
        sizes: ranks per communicator of each group of communicators.
    """
    block, size = None, 0
    for line in lines:
        opened, named = _DIFFERENT.match(line), _COMMUNICATOR.match(line)
        size = sizes.get(int(named[1]), 0) if named else size
        if opened or named:
            yield from block.lag() if block else ()
            block = _Launches(_operation(opened[1]), size) if opened else None
        elif block is not None:
            block.read(line)
    yield from block.lag() if block else ()


def _operation(name: str | None) -> str:
    """Return the operation's name; `collective operation counts` concern all of them."""
    return ANY_OPERATION if name in {None, "collective"} else str(name)


class _Launches:
    """The launches by the ranks of one communicator of one operation."""

    def __init__(self, operation: str, size: int) -> None:
        self._operation = operation
        self._size = size
        self._groups: dict[int, int] = {}
        self._named: dict[int, list[int]] = {}
        self._last = 0

    def read(self, line: str) -> None:
        """Read a sentence about several ranks, or one, or one more of the last group."""
        several, one, listed = _SEVERAL.match(line), _ONE.match(line), _LISTED.match(line)
        if several is not None:
            self._last = int(several[2] or 0)
            self._groups[self._last] = int(several[1])
        elif one is not None:
            self._last = int(one[2] or 0)
            self._groups[self._last] = self._groups.get(self._last, 0) + 1
            self._named.setdefault(self._last, []).append(int(one[1]))
        elif listed is not None:
            self._named.setdefault(self._last, []).append(int(listed[1]))

    def lag(self) -> Iterator[Lag]:
        """Yield the lag if there is one."""
        first, last = max(self._groups, default=0), min(self._groups, default=0)
        if first > last:
            ranks = tuple(sorted(self._named.get(last, ())))
            operation = known_operation(self._operation)
            yield Lag(operation, first - last, ranks, self._groups[last], self._size)
