"""Statistics over the ranks of each step that tolerate missing values without warnings."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats


def row_median(values: Floats) -> Floats:
    """Return the median (S,) of the finite entries of each row, NaN where a row has none."""
    filled = np.isfinite(values).any(axis=1)
    medians = np.full(len(values), np.nan)
    medians[filled] = np.nanmedian(values[filled], axis=1)
    return medians


def row_maximum(values: Floats) -> Floats:
    """Return the largest finite entry (S,) of each row, 0 where a row has none."""
    finite = np.where(np.isfinite(values), values, -np.inf)
    return np.asarray(finite.max(axis=1, initial=0.0), dtype=np.float64)


def column_median(values: Floats) -> Floats:
    """Return the median (R,) of the finite entries of each column, NaN where it has none."""
    return row_median(values.T)
