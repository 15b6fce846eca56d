"""Ranks that only an earlier, larger attempt of a job had: nobody misses them.

A job that is started again on fewer nodes numbers its ranks anew. Agents of nodes that it left
report the ended processes for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import rank_holders
from rankscope_analyzers.layers.rank_locations import by_rank, rank_number


def processes(observed: Observed, job_id: str) -> Iterator[Series]:
    """Yield the identities of a job's processes that have not ended, whichever attempt's."""
    found = [*observed.of(training.RANK_INFO, job_id=job_id)]
    return rank_holders.going_on(observed, job_id, found)


def sizes_by_rank(observed: Observed, job_id: str) -> frozenset[tuple[int, int | None]]:
    """Return rank and world size of processes that have not ended, None for an unknown size."""
    numbers = (
        (rank_number(one.labels.get("rank", "")), rank_number(one.labels.get("world_size", "")))
        for one in processes(observed, job_id)
    )
    return frozenset((rank, size or None) for rank, size in numbers if rank is not None)


def earlier_ranks(observed: Observed, job_id: str) -> frozenset[int]:
    """Return the ranks beyond the size that all living processes name, of which none lives."""
    living = sizes_by_rank(observed, job_id)
    known = [size for _, size in living if size is not None]
    if not known or len(known) < len(living):
        return frozenset()
    size, alive = max(known), {rank for rank, _ in living}
    reported = by_rank(observed, training.RANK_INFO, job_id)
    return frozenset(rank for rank in reported if rank >= size) - alive
