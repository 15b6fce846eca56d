"""Conclusion: all ranks compute longer than at the start of the run, and nobody sticks out."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.medians import mean, median, typical
from rankscope_analyzers.stragglers.view import COST_STEPS, Baseline, Candidate, View

MINIMUM_RISE = 0.04
"""Relative rise of compute below which a change of data explains it."""

SIGMAS = 5.0
"""Standard errors, of the window and of the start it is compared with."""

EVERYBODY = 0.85
"""So many ranks must be slower before "all" is the right word."""

STEADY_STEPS = 10
"""Newest steps whose median must be up as well: stalls of hosts raise the mean now and then."""

BASELINE_STEPS = 30
"""Steps that the baseline is the median of."""


def compute(view: View) -> Candidate | None:
    """Return that the whole job computes longer than it did."""
    if view.baseline is None:
        return None
    rise = view.stage / view.baseline.stage - 1
    steady = median(rise[-STEADY_STEPS:], 0)[0]
    level = typical(np.fmin(mean(rise), steady))
    if level <= _limit(view.baseline, len(rise)):
        return None
    ratio = mean(view.compute) / (view.baseline.stage[:, None, None] * view.baseline.relative)
    known = ratio[np.isfinite(ratio)]
    if float((known > 1 + level / 2).mean()) < EVERYBODY:
        return None
    newest = view.compute[-COST_STEPS:]
    now = typical(mean(rise[-COST_STEPS:]))
    cost = view.saved(newest / (1 + max(now, level)))
    observed = typical(mean(view.stage))
    return Candidate("global_slowdown", cost, (), -1, observed, observed / (1 + level))


def _limit(baseline: Baseline, steps: int) -> float:
    error = baseline.stage_noise * float(np.sqrt(1 / steps + 1.5 / BASELINE_STEPS))
    return max(MINIMUM_RISE, SIGMAS * error)
