"""The time that loader workers need for a step's batches, compared with the step.

At the pace of the slowest of equal loaders the queues of the others fill and stay full, so that for
minutes one rank waits for what slows all of them, and then another. Waits do not show that; the
workers' own times do.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans
from rankscope_analyzers.numeric.medians import lower, mean, typical
from rankscope_analyzers.stragglers import attribution
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, View

BUSY_SHARE = 0.85
"""Fraction of the step: workers that need as much for its batches cannot get ahead."""

EQUAL_SHARE = 0.85
"""Fraction of the time of a waiting rank's workers: others that need as much are as slow."""

KNOWN_SHARE = 0.5
"""Share of the ranks whose loaders must be known for a comparison."""

FAST_SHARE = 0.3
"""Quantile over ranks that contains no culprit as long as culprits are few."""

MINIMUM_COST = 0.025
"""Share of the step that ranks wait for input: a prefetching loader costs less when it works."""


def are_alike(view: View, accused: Booleans) -> bool:
    """Return True if the workers of the others are as slow as those of the ranks that wait.

    Args:
        view: the newest steps.
        accused: (P, D, T) ranks that wait for input longer than the others.
    """
    if view.loader is None:
        return False
    needed = mean(view.loader)
    own, others = needed[accused], needed[~accused]
    own, others = own[np.isfinite(own)], others[np.isfinite(others)]
    if not len(own) or len(others) < KNOWN_SHARE * np.count_nonzero(~accused):
        return False
    slowest = float(np.median(own))
    is_cause = slowest > BUSY_SHARE * view.step_seconds
    return is_cause and float(np.median(others)) > EQUAL_SHARE * slowest


def slow_for_all(view: View) -> Candidate | None:
    """Return the candidate that nearly all ranks' workers are slower than the rest of the step."""
    if view.loader is None:
        return None
    needed = mean(view.loader[-COST_STEPS:])
    if np.isfinite(needed).mean() < KNOWN_SHARE:
        return None
    least = float(lower(needed, (0, 1, 2), FAST_SHARE).ravel()[0])
    # A few long steps, as of workers that deliver together, are no pace that others could keep.
    if not least > BUSY_SHARE * min(view.step_seconds, typical(view.duration)):
        return None
    longest = np.fmax.reduce(view.input.reshape(len(view.input), -1), axis=1)
    waited = float(mean(longest[-COST_STEPS:]))
    if not waited > max(MINIMUM_COST * view.step_seconds, attribution.MINIMUM_SECONDS):
        return None
    cost = waited / float(view.duration[-COST_STEPS:].mean())
    expected = max(view.step_seconds - waited, 0.0)
    observed = float(np.nanmedian(needed))
    candidate = Candidate(
        "storage_checkpoint", cost, (), -1, observed, expected, shown_by="workers"
    )
    return candidate.with_extent(longest)
