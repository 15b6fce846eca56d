"""Each rank compared with its peers in the same step: leave-one-out medians, excess and noise.

Comparing inside one step removes what all ranks share (sequence length, a slow node clock, a noisy
cluster), and leaving a rank out of its own reference keeps two-rank and four-rank jobs fair.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.row_statistics import column_median, row_median

NORMAL_CONSISTENCY = 1.4826
"""Makes the median absolute deviation estimate the standard deviation of normal noise."""


def peer_median(values: Floats) -> Floats:
    """Return for every entry of (S, R) the median of the other entries of its row.

    NaN entries are not peers of others and get NaN themselves; a row with a single finite entry
    gives NaN.
    """
    order = np.argsort(values, axis=1)  # NaN sorts last
    ordered = np.take_along_axis(values, order, axis=1)
    position = np.empty_like(order)
    np.put_along_axis(position, order, np.broadcast_to(np.arange(values.shape[1]), values.shape), 1)
    others = np.isfinite(values).sum(axis=1, keepdims=True) - 1
    low, high = np.maximum(others - 1, 0) // 2, np.maximum(others, 0) // 2
    medians = (_without(ordered, position, low) + _without(ordered, position, high)) / 2
    return np.where(np.isfinite(values) & (others > 0), medians, np.nan)


def _without(ordered: Floats, position: Integers, index: Integers) -> Floats:
    """Entry `index` of each sorted row once the entry at `position` is taken out."""
    shifted = np.minimum(index + (position <= index), ordered.shape[1] - 1)
    return np.take_along_axis(ordered, shifted, axis=1)


def peer_median_by_stage(values: Floats, stages: Integers) -> Floats:
    """Return `peer_median` within each pipeline stage: stages have different work by design."""
    medians = np.full_like(values, np.nan)
    for stage in np.unique(stages):
        members = stages == stage
        medians[:, members] = peer_median(values[:, members])
    return medians


def noise(excess: Floats) -> Floats:
    """Return per rank (R,) the noise of its peers' excess over a step, in the unit of `excess`.

    It is the median over ranks of each rank's own spread, so one broken rank cannot raise it.
    """
    spread = column_median(np.abs(excess - column_median(excess)))
    return np.full(excess.shape[1], NORMAL_CONSISTENCY * float(row_median(spread[None])[0]))


def healthy_median_by_stage(values: Floats, suspects: Booleans, stages: Integers) -> Floats:
    """Return for every entry of (S, R) the median of the non-suspects in its row and stage.

    A stage in which all ranks are suspects uses the non-suspects of the whole row.
    """
    healthy = np.where(suspects, np.nan, values)
    medians = np.full_like(values, np.nan)
    for stage in np.unique(stages):
        members = stages == stage
        reference = healthy[:, members] if (members & ~suspects).any() else healthy
        medians[:, members] = row_median(reference)[:, None]
    return medians
