"""How long steps of a job usually take, and how long none may end before the job is called hung."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.numeric.arrays import Booleans
from rankscope_analyzers.steps.frames import StepFrame

SLOW_STEPS = 5.0
"""Times the 99th percentile of steps that a single one may take."""

LONG_PAUSES = 2.0
"""Times the longest step so far, which may have held a checkpoint or an evaluation. The time before
a process's first steps is no measure: it loads and connects once."""

TAIL = 3.0
"""Substitute for the 99th percentile, in means, if only sums of steps are known."""


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A checkpoint, evaluation or compilation that a rank is in.

    Args:
        since_unix_seconds: when it began, by the clock of the rank's node.
        longest_seconds: the longest one of its kind in this job so far, None before the first.
    """

    rank: int
    kind: str
    since_unix_seconds: float
    longest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations of a job's steps in seconds, of the slowest rank each; None if unknown."""

    usual: float | None = None
    slow: float | None = None
    longest: float | None = None

    def allowed(self, least: float) -> float:
        """Return for how many seconds no step may end, at least `least`."""
        return max(least, SLOW_STEPS * (self.slow or 0.0), LONG_PAUSES * (self.longest or 0.0))


def pace_of_frame(frame: StepFrame) -> Pace | None:
    """Return the pace from a job's step records, None if they hold no step."""
    known = np.isfinite(frame.step)
    rows = known.any(axis=1)
    if not rows.any():
        return None
    longest = np.where(known, frame.step, 0.0).max(axis=1)
    steps = longest[rows]
    judged = longest[rows & frame.usable] if (rows & frame.usable).any() else steps
    usual, slow = np.quantile(judged, (0.5, 0.99))
    later = longest[rows & ~_first_steps(frame)]
    return Pace(float(usual), float(slow), float((later if later.size else steps).max()))


def _first_steps(frame: StepFrame) -> Booleans:
    """Return (S,) true for the first step of each attempt."""
    first: Booleans = np.diff(frame.segments, prepend=frame.segments[0] - 1) != 0
    return first


def pace_of_pages(observed: Observed, job_id: str) -> Pace:
    """Return the pace from the sums on agents' pages: means, which single pauses hardly move."""
    totals = by_rank(observed, training.STEP_SECONDS, job_id)
    counts = by_rank(observed, training.STEPS, job_id)
    means = [
        totals[rank].last / counts[rank].last
        for rank in totals
        if rank in counts and counts[rank].last > 0
    ]
    last = by_rank(observed, training.LAST_STEP_SECONDS, job_id).values()
    newest = max((series.last for series in last), default=None)
    if not means:
        return Pace(newest, newest, newest)
    usual = float(np.median(means))
    return Pace(usual, max(TAIL * usual, newest or 0.0), newest)
