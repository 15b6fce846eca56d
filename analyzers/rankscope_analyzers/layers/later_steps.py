"""Whether ranks made steps long after a fault that had to stop them, which is over then."""

from __future__ import annotations

from collections.abc import Collection

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.rank_locations import by_rank

WENT_ON_SECONDS = 120.0
"""Steps that end this long after a fault are not those that were under way or launched ahead."""


def went_on(observed: Observed, job_id: str, ranks: Collection[int], at: float) -> bool:
    """Return True if all of these ranks, one at least, have made steps long after a time."""
    if not ranks:
        return False
    steps = by_rank(observed, training.LAST_STEP_TIMESTAMP, job_id)
    return all(rank in steps and steps[rank].last > at + WENT_ON_SECONDS for rank in ranks)
