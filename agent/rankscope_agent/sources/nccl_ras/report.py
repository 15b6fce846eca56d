"""The content of a RAS reply, independent of its format: pure values.

Counts of collectives are host-side launches. In a busy job a difference of one is normal; a rank
that stays behind is late, and counts that do not change indicate a hang.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OPERATIONS = frozenset({"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"})
"""Collectives that RAS counts (src/ras/collectives.cc)."""

ANY_OPERATION = "any"
"""Operation if the counts are not by operation: before 2.26 all collectives share one count."""

OTHER_OPERATION = "other"


class RasReplyError(Exception):
    """The text is not a reply of RAS, or has an unknown format."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the last ranks of one communicator are behind the first, in launches.

    Args:
        ranks: those that are furthest behind, as ranks in their communicator; empty if the reply
            does not list them.
        count: their number.
        size: ranks that their communicator should have; 0 if unknown.
    """

    operation: str
    operations: int
    ranks: tuple[int, ...]
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class RasReport:
    """The state of a job according to RAS.

    Args:
        version: of NCCL; empty if not printed.
        communicators: number of communicators of the job.
        largest: nominal number of ranks of the largest communicator.
        missing_ranks: largest number of ranks of one communicator that returned no data.
        dead_processes: processes that RAS considers dead, which it does after 60 s.
        failed_ranks: largest number of ranks of one communicator with an asynchronous error or an
            abort; None if the reply does not count them.
        timeouts: processes that did not answer this query in time.
        lags: the greatest for each operation.
    """

    version: str
    communicators: int
    largest: int
    missing_ranks: int
    dead_processes: int
    failed_ranks: int | None
    timeouts: int
    lags: tuple[Lag, ...]


def lag_of(operation: str, launches: Mapping[int, int], size: int) -> Lag | None:
    """Compare the launches of one communicator's ranks; return None if all are equal."""
    if not launches:
        return None
    first, last = max(launches.values()), min(launches.values())
    if first == last:
        return None
    behind = tuple(sorted(rank for rank, count in launches.items() if count == last))
    return Lag(known_operation(operation), first - last, behind, len(behind), size)


def greatest(lags: Iterable[Lag]) -> tuple[Lag, ...]:
    """Return the greatest lag of each operation, the greatest of all first.

    Of equal ones that of the largest communicator is the most telling.
    """
    by_operation: dict[str, Lag] = {}
    for lag in lags:
        known = by_operation.get(lag.operation)
        if known is None or (lag.operations, lag.size) > (known.operations, known.size):
            by_operation[lag.operation] = lag
    found = by_operation.values()
    return tuple(sorted(found, key=lambda lag: (-lag.operations, -lag.size, lag.operation)))


def known_operation(operation: str) -> str:
    """Return the operation as a label from a closed vocabulary."""
    return operation if operation in OPERATIONS | {ANY_OPERATION} else OTHER_OPERATION
