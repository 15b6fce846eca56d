"""A job against its own beginning: what tells "everything got slower" when no rank sticks out."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.peers import noise
from rankscope_analyzers.numeric.row_statistics import column_median, row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running.windows import (
    STRIDE_STEPS,
    WINDOW_STEPS,
    Span,
    spans,
    window_means,
    window_starts,
)

BASELINE_STEPS = 30
"""Usable steps at the start of a job that stand for its healthy pace."""

BASELINE_SECONDS = 10.0
"""Jobs with steps of milliseconds take longer than 30 steps to show their pace."""

MINIMUM_RISE = 0.20
"""A whole job that is slower by less than this may simply have another load or batch mix."""

SIGNIFICANCE = 5.0
"""Standard errors of a window mean, as for single ranks."""

PERSISTENCE_SECONDS = 30.0
"""Everything is slow together also while a node does its housekeeping; that is over sooner."""


def row_count(frame: StepFrame) -> int:
    """Return how many usable steps the baseline takes; all of them when the frame is too short."""
    elapsed = np.cumsum(row_maximum(frame.step))
    return max(BASELINE_STEPS, int(np.searchsorted(elapsed, BASELINE_SECONDS)) + 1)


def risen(frame: StepFrame, values: Floats) -> tuple[Booleans, Floats]:
    """Say in which windows each column of (S, C) values lies above its baseline.

    Returns:
        (windows, C) flags, false for windows that reach into the baseline or where there is
        nothing beyond it; and the baseline medians (C,).
    """
    count = row_count(frame)
    starts = window_starts(len(values))
    if count + WINDOW_STEPS > len(values):
        return np.zeros((len(starts), values.shape[1]), dtype=np.bool_), np.zeros(values.shape[1])
    healthy = column_median(values[:count])
    error = SIGNIFICANCE * noise(values[:count] - healthy) / np.sqrt(WINDOW_STEPS)
    threshold = healthy + np.maximum(MINIMUM_RISE * healthy, error)
    flags = (window_means(values) > threshold) & (starts >= count - STRIDE_STEPS)[:, None]
    return np.asarray(flags, dtype=np.bool_), healthy


def lasting(frame: StepFrame, flagged: Booleans) -> tuple[Span, ...]:
    """Return the spans of flagged windows (W,) that lasted long enough for a whole job."""
    duration = row_maximum(frame.step)
    return tuple(
        span
        for span in spans(flagged, len(frame.step))
        if float(duration[span.rows()].sum()) >= PERSISTENCE_SECONDS
    )
