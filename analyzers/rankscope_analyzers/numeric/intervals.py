"""Sets of time intervals as (n, 2) arrays: their union, and their overlap with windows.

An intersection is never needed: "A but not B" is the union of both minus B.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats


def union(*sets: Floats, bridging: float = 0.0) -> Floats:
    """Return the disjoint intervals, in order, that cover the same times.

    Args:
        sets: (n, 2) arrays of begins and ends, in any order.
        bridging: gaps up to this long are covered too.
    """
    spans = np.concatenate([np.empty((0, 2)), *sets])
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.append(True, spans[1:, 0] > reached[:-1] + bridging)
    last = np.append(first[1:], True)
    return np.column_stack([spans[first, 0], reached[last]])


def covered(disjoint: Floats, windows: Floats) -> Floats:
    """Return how much of each window (w, 2) the intervals of a union cover (w,)."""
    if not len(disjoint):
        return np.zeros(len(windows))
    lengths = disjoint[:, 1] - disjoint[:, 0]
    before = np.concatenate([[0.0], np.cumsum(lengths)])

    def until(times: Floats) -> Floats:
        index = np.searchsorted(disjoint[:, 0], times, side="right")
        begun = np.maximum(index - 1, 0)
        part = np.clip(times - disjoint[begun, 0], 0.0, lengths[begun])
        return np.where(index > 0, before[begun] + part, 0.0)

    return until(windows[:, 1]) - until(windows[:, 0])
