"""From per-step values to spans of time in which a condition held: windows, runs, spans.

One slow step is nothing, a slow minute is a fault. A condition is judged over windows of 16 steps
that start every 4 steps, and a span is a run of windows in which it held.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.row_statistics import row_maximum
from rankscope_analyzers.steps.frames import StepFrame

WINDOW_STEPS = 16
"""Long enough to average step noise, short enough to name a fault within about 15 steps."""

STRIDE_STEPS = 4
"""A quarter of a window: consecutive windows overlap, so a fault's edges are seen."""

CONSECUTIVE_WINDOWS = 3
"""A cause must hold this many windows in a row, else a single hiccup would be a verdict."""

GAP_WINDOWS = 4
"""Windows without the condition that a span may bridge, so an intermittent cause is one fault."""

PERSISTENCE_SECONDS = 5.0
"""Below this a busy operating system explains a slow rank; with steps of milliseconds three
windows would last a second only."""

PERSISTENCE_SHARE = 0.6
"""Where less was observed than would allow PERSISTENCE_SECONDS, a span must fill this share."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `stop` (exclusive) of a frame."""

    start: int
    stop: int

    def rows(self) -> slice:
        """Return the span as an index."""
        return slice(self.start, self.stop)

    def overlap(self, other: Span) -> int:
        """Return the number of rows that both spans hold."""
        return max(0, min(self.stop, other.stop) - max(self.start, other.start))


def window_starts(step_count: int) -> Integers:
    """Return the first row of each window; the last window ends with the last step."""
    last = max(step_count - WINDOW_STEPS, 0)
    return np.unique(np.append(np.arange(0, last + 1, STRIDE_STEPS), last)).astype(np.int64)


def window_means(values: Floats) -> Floats:
    """Return (windows, R) means of (S, R) values over each window, NaN entries left out."""
    starts = window_starts(len(values))
    return _means(values, starts, np.minimum(starts + WINDOW_STEPS, len(values)))


def rolling_mean(values: Floats, steps: int) -> Floats:
    """Return (S, R) means over `steps` rows around each row, fewer at the ends, NaN left out."""
    rows = np.arange(len(values))
    starts = np.maximum(rows - steps // 2, 0)
    return _means(values, starts, np.minimum(rows - steps // 2 + steps, len(values)))


def _means(values: Floats, starts: Integers, stops: Integers) -> Floats:
    finite = np.isfinite(values)
    total = _cumulative(np.where(finite, values, 0.0))
    count = _cumulative(finite.astype(np.float64))
    with np.errstate(invalid="ignore"):
        return (total[stops] - total[starts]) / (count[stops] - count[starts])


def _cumulative(values: Floats) -> Floats:
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])


def spans(flagged: Booleans, step_count: int) -> tuple[Span, ...]:
    """Return the runs of flagged windows (W,), short gaps bridged, as spans of rows."""
    starts = window_starts(step_count)
    hits = np.flatnonzero(flagged)
    if not len(hits):
        return ()
    cuts = np.flatnonzero(np.diff(hits) > GAP_WINDOWS + 1) + 1
    needed = min(CONSECUTIVE_WINDOWS, len(starts))
    return tuple(
        Span(int(starts[run[0]]), int(min(starts[run[-1]] + WINDOW_STEPS, step_count)))
        for run in np.split(hits, cuts)
        if len(run) >= needed
    )


def persists(frame: StepFrame, span: Span) -> bool:
    """Say whether a span lasted long enough to be a fault rather than a busy moment."""
    durations = row_maximum(frame.step)
    needed = min(PERSISTENCE_SECONDS, PERSISTENCE_SHARE * float(durations.sum()))
    return float(durations[span.rows()].sum()) >= needed


def is_open(frame: StepFrame, span: Span) -> bool:
    """Say whether a span reaches the end of the frame, give or take the windows it may bridge."""
    return span.stop >= len(frame.step) - GAP_WINDOWS * STRIDE_STEPS
