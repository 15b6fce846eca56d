"""Check: all ranks, or most, take longer than at the start of the run, and none stands out."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.medians import mean, median, typical
from rankscope_analyzers.stragglers.attribution import MAXIMUM_SHARE
from rankscope_analyzers.stragglers.view import (
    BASELINE_STEPS,
    COST_STEPS,
    Baseline,
    Candidate,
    View,
)

MINIMUM_RISE = 0.04
"""Relative rise of compute below which a change of data explains it."""

CROWDED_RISE = 0.20
"""The same if ranks share CPUs: other load comes and goes there."""

STEP_RISE = 0.20
"""Relative rise of the step that is reported if the parts of the step are not measured."""

SIGMAS = 5.0
"""Standard errors of the window and of the start that it is compared with."""

EVERYBODY = 0.85
"""Share of the ranks that must be slower before "all" is the right word."""

MOST = MAXIMUM_SHARE
"""Share of the ranks from which on those that became slower are no stragglers: the others are too
few to compare them with. As long as "all" is not the right word, their number is given."""

MOST_RISE = 0.06
"""Relative rise of their compute from which on they count: the clocks of healthy GPUs wander by a
few per cent, and of three ranks two may do so together."""

STEADY_STEPS = 10
"""Newest steps whose median must be raised as well: stalls of hosts raise the mean now and then."""

STEADY_SHARE = 0.75
"""Share of the newest steps that must be longer if only their duration is known."""


def slow_compute(view: View) -> Candidate | None:
    """Return the candidate that all ranks, or most, compute longer than they did."""
    if view.baseline is None:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        rise = view.paces / (view.baseline.paces * view.more_work) - 1
    steady = median(rise[-STEADY_STEPS:], 0)[0]
    level = typical(np.fmin(mean(rise), steady))
    if level <= _limit(view, view.baseline, len(rise)):
        return None
    slower, known = _count_slower(view, view.baseline, 1 + level / 2)
    for_all = slower >= EVERYBODY * known
    for_most = view.flat and not view.crowded and slower > MOST * known and level > MOST_RISE
    if not slower or not (for_all or for_most):
        return None
    if float((mean(rise) > level / 2).mean()) < EVERYBODY:
        return None  # a heavy stage keeps all of them waiting
    newest = view.compute[-COST_STEPS:]
    now = typical(mean(rise[-COST_STEPS:]))
    cost = view.saved_share(newest / (1 + max(now, level)))
    observed = typical(mean(view.paces))
    candidate = Candidate(
        "global_slowdown", cost, (), -1, observed, observed / (1 + level),
        shown_by="" if for_all else "most", slower=(slower, known),
    )  # fmt: skip
    return candidate.with_extent(median(rise, 1)[:, 0])


def _count_slower(view: View, baseline: Baseline, times: float) -> tuple[int, int]:
    """Return how many ranks compute longer than so many times their usual time, of how many."""
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = baseline.stage[:, None, None] * baseline.relative * view.more_work
        ratio = mean(view.compute) / usual
    known = ratio[np.isfinite(ratio)]
    return int((known > times).sum()), len(known)


def _limit(view: View, baseline: Baseline, steps: int) -> float:
    error = baseline.stage_noise * float(np.sqrt(1 / steps + 1.5 / BASELINE_STEPS))
    return max(CROWDED_RISE if view.crowded else MINIMUM_RISE, SIGMAS * error)


def slow_steps(view: View) -> Candidate | None:
    """Return the candidate that steps take longer than they did, if their parts are unknown."""
    if view.baseline is None or "compute" in view.known or not view.baseline.duration > 0:
        return None
    usual = view.baseline.duration * view.more_work
    longer = np.asarray(view.duration > (1 + STEP_RISE) * usual)
    if float(longer.mean()) < STEADY_SHARE:
        return None
    now = typical(view.duration)
    candidate = Candidate(
        "global_slowdown", 1 - usual / now, (), -1, now, usual, 0.5, shown_by="steps"
    )
    return candidate.with_extent(view.duration - usual)
