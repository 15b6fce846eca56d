"""Whether ranks made steps long after a fault that had to stop them, which is over then."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rankscope_analyzers.intake.observed import Series

WENT_ON_SECONDS = 120.0
"""Steps that end this long after a fault are not those that were under way or launched ahead."""


def went_on(steps: Mapping[int, Series], ranks: Collection[int], at: float) -> bool:
    """Return True if some ranks, one at least, have all made steps long after a time.

    Args:
        steps: when each rank of the job ended its last step; read once for all of its faults.
        ranks: those that a fault had to stop.
        at: when it did.
    """
    late = at + WENT_ON_SECONDS
    return bool(ranks) and all(rank in steps and steps[rank].last > late for rank in ranks)
