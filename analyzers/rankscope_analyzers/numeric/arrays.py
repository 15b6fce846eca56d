"""Type aliases for the arrays that analyzers use, and the distinct values of one."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Strings: TypeAlias = npt.NDArray[np.str_]
Booleans: TypeAlias = npt.NDArray[np.bool_]


SPARSE = 4
"""Values whose range exceeds this many times their number are sorted instead of counted."""


def distinct(values: Integers) -> tuple[Integers, Integers]:
    """Return the distinct values, ascending, and the index of each value among them.

    `values` holds one at least.
    """
    low, high = int(values.min()), int(values.max())
    if high - low > SPARSE * len(values):
        known, index = np.unique(values, return_inverse=True)
        return known, index.astype(np.int64)
    there = np.zeros(high - low + 1, dtype=np.bool_)
    there[values - low] = True
    position = np.cumsum(there) - 1
    return np.flatnonzero(there).astype(np.int64) + low, np.asarray(position[values - low])
