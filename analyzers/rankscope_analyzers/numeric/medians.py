"""Medians that skip missing values, fast if nothing is missing."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats

FEW = 3
"""Up to this many members the lower median is taken: averaging with the culprit would halve it."""


SORTED = 256
"""Up to this many entries are sorted as a whole: that is faster than to find the middle ones."""

SHAPES_KEPT = 1024
"""Arrangements of axes that are kept: a job has a few dozen, and working one out takes as long as
a median of its entries."""


def median(values: Floats, axes: int | tuple[int, ...]) -> Floats:
    """Return the median over axes, these kept with length one; NaN where nothing is known.

    Of an even number of at most `FEW` entries it is the lower one.
    """
    flat, shape = _flat(values, (axes,) if isinstance(axes, int) else axes)
    return _of_last_axis(flat).reshape(shape)


def _flat(values: Floats, axes: tuple[int, ...]) -> tuple[Floats, tuple[int, ...]]:
    """Return values with the other axes first and these merged into one, and the shape without."""
    order, flat, reduced = _arranged(values.shape, axes)
    return values.transpose(order).reshape(flat), reduced


@lru_cache(SHAPES_KEPT)
def _arranged(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the order of axes with these last, the shape with these merged, and with length one.

    Any axis may be empty.
    """
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    merged = math.prod(shape[axis] for axis in axes)
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return (*kept, *axes), (*(shape[axis] for axis in kept), merged), reduced


def _of_last_axis(values: Floats) -> Floats:
    size = values.shape[-1]
    if size == 1:
        return np.asarray(values[..., 0])
    low, high = (size - 1) // 2, size // 2 if size > FEW else (size - 1) // 2
    ordered, complete = _ordered(values, low, high)
    if complete:
        return np.asarray((ordered[..., low] + ordered[..., high]) / 2)
    known = np.isfinite(ordered).sum(axis=-1)
    lower = np.maximum(known - 1, 0) // 2
    upper = np.where(known > FEW, known // 2, lower)
    picked = (_take(ordered, lower) + _take(ordered, np.minimum(upper, size - 1))) / 2
    return np.asarray(np.where(known > 0, picked, np.nan))


def _ordered(values: Floats, low: int, high: int) -> tuple[Floats, bool]:
    """Return values in order, as far as two indices require it, and whether none is missing."""
    if 0 < values.shape[-1] <= SORTED:
        ordered = values.copy()
        ordered.sort(axis=-1)
        return ordered, not _is_missing(ordered[..., -1])
    if np.isnan(values).any():
        return np.sort(values, axis=-1), False
    return np.partition(np.ascontiguousarray(values), sorted({low, high}), axis=-1), True


def _is_missing(values: Floats) -> bool:
    """Return True if any entry is NaN: `maximum` passes it on, in one call of numpy."""
    return math.isnan(np.maximum.reduce(values, axis=None, initial=-np.inf))


def _take(values: Floats, index: Any) -> Floats:
    """Return one entry of each row of a contiguous array."""
    begins = np.arange(index.size) * values.shape[-1]
    return np.asarray(values.reshape(-1)[begins + index.ravel()].reshape(index.shape))


def reference(values: Floats, axes: int | tuple[int, ...]) -> Floats:
    """Return what healthy members show: the median of many, the lower third of up to `HALVES`.

    A node can hold half of the members of a small group, and the median then lies between the
    slow and the healthy ones.
    """
    axes = (axes,) if isinstance(axes, int) else axes
    size = math.prod(values.shape[axis] for axis in axes)
    return median(values, axes) if size > HALVES else lower(values, axes, LOWER_THIRD)


def lower(values: Floats, axes: tuple[int, ...], share: float) -> Floats:
    """Return the entry below which a share of the known ones lies, with axes kept at length one."""
    flat, shape = _flat(values, axes)
    ordered = flat.copy()
    ordered.sort(axis=-1)
    if ordered.size and is_known(ordered[..., 0]) and is_known(ordered[..., -1]):
        return np.asarray(ordered[..., int((ordered.shape[-1] - 1) * share)].reshape(shape))
    known = np.isfinite(ordered).sum(axis=-1)
    index = (np.maximum(known - 1, 0) * share).astype(np.int64)
    return _take(ordered, index).reshape(shape)


LOWER_THIRD = 0.35
"""Below it are healthy members even if half of them are slow."""


HALVES = 32
"""Size of a group up to which one node of 8, or one of two, may be half of it."""


def mean(values: Floats, axis: int = 0) -> Floats:
    """Return the mean over an axis without the missing entries, NaN where nothing is known."""
    plain = np.add.reduce(values, axis=axis)
    if is_known(plain):
        return np.asarray(plain / values.shape[axis])
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def is_known(values: Floats) -> bool:
    """Return True if no entry is missing; only sums that overflow are False as well.

    It is the sum that shows it: for the few entries of most jobs, calls of numpy are what costs.
    """
    return math.isfinite(np.add.reduce(values, axis=None))


def zero_if_missing(values: Floats) -> Floats:
    """Return values with 0 where one is missing; no copy if none is."""
    return values if is_known(values) else np.nan_to_num(values)


def spread(values: Floats, axis: int = 0) -> Floats:
    """Return the standard deviation over an axis without the missing entries."""
    centre = np.expand_dims(mean(values, axis), axis)
    return np.asarray(np.sqrt(mean((values - centre) ** 2, axis)))


def typical(values: Floats) -> float:
    """Return the median of all known entries, 0 where there is none."""
    known = values.ravel()
    if not is_known(known):
        known = known[np.isfinite(known)]
    if not known.size:
        return 0.0
    low, high = (known.size - 1) // 2, known.size // 2
    ordered = np.partition(known, (low, high) if low < high else low)
    return float(ordered[low] + ordered[high]) / 2
