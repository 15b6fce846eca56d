"""The content of a RAS reply, independent of its format: pure values.

Counts of collectives are host-side launches. A spread of one is normal in a job that is busy; a
rank that stays behind is late, and counts that stand still are a hang.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OPERATIONS = frozenset({"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"})
"""Collectives that RAS counts (src/ras/collectives.cc)."""

ANY_OPERATION = "any"
"""Operation of counts that are not distinguished: before 2.26 all collectives share one."""

OTHER_OPERATION = "other"


class RasReplyError(Exception):
    """The text is no reply of RAS, or of a form that is not known."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the last ranks of one communicator are behind the first, in launches.

    Args:
        ranks: those that are furthest behind, as numbers in their communicator; empty where the
            reply does not list them.
        count: how many these are.
    """

    operation: str
    operations: int
    ranks: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class RasReport:
    """A job as RAS sees it.

    Args:
        version: of NCCL, empty where it is not printed.
        communicators: how many the job has.
        largest: ranks that the largest of these should have.
        missing_ranks: most ranks of one communicator that gave no data.
        dead_processes: processes that RAS gave up on; it does so after 60 s.
        failed_ranks: most ranks of one communicator with an asynchronous error or an abort; None
            where the reply does not count them.
        timeouts: processes that did not answer in time, this time.
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


def lag_of(operation: str, launches: Mapping[int, int]) -> Lag | None:
    """Compare the launches of one communicator's ranks; None where all are equal."""
    if not launches:
        return None
    first, last = max(launches.values()), min(launches.values())
    if first == last:
        return None
    behind = tuple(sorted(rank for rank, count in launches.items() if count == last))
    return Lag(known_operation(operation), first - last, behind, len(behind))


def greatest(lags: Iterable[Lag]) -> tuple[Lag, ...]:
    """Return the greatest lag of each operation, the greatest of all first."""
    by_operation: dict[str, Lag] = {}
    for lag in lags:
        known = by_operation.get(lag.operation)
        if known is None or lag.operations > known.operations:
            by_operation[lag.operation] = lag
    return tuple(sorted(by_operation.values(), key=lambda lag: (-lag.operations, lag.operation)))


def known_operation(operation: str) -> str:
    """Return the operation as a label, of which there are few."""
    return operation if operation in OPERATIONS | {ANY_OPERATION} else OTHER_OPERATION
