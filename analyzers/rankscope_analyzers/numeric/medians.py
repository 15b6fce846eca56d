"""Medians that skip missing values, fast if nothing is missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats

FEW = 3
"""Up to this many members the lower median is taken: averaging with the culprit would halve it."""


def median(values: Floats, axes: int | tuple[int, ...]) -> Floats:
    """Return the median over axes, these kept with length one; NaN where nothing is known.

    Of an even number of at most `FEW` entries it is the lower one.
    """
    axes = (axes,) if isinstance(axes, int) else axes
    kept = tuple(axis for axis in range(values.ndim) if axis not in axes)
    result = _of_last_axis(np.ascontiguousarray(_flat(values, kept, axes)))
    return result.reshape(_kept_shape(values, axes))


def _kept_shape(values: Floats, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of values with some axes reduced to length one."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(values.shape))


def _flat(values: Floats, kept: tuple[int, ...], axes: tuple[int, ...]) -> Floats:
    """Return values with the kept axes first and the others merged into one; any may be empty."""
    shape = (values.shape[axis] for axis in kept)
    size = math.prod(values.shape[axis] for axis in axes)
    return values.transpose(*kept, *axes).reshape(*shape, size)


def _of_last_axis(values: Floats) -> Floats:
    size = values.shape[-1]
    if size == 1:
        return np.asarray(values[..., 0])
    if not np.isnan(values).any():
        low, high = (size - 1) // 2, size // 2 if size > FEW else (size - 1) // 2
        ordered = np.partition(values, sorted({low, high}), axis=-1)
        return np.asarray((ordered[..., low] + ordered[..., high]) / 2)
    ordered = np.sort(values, axis=-1)
    known = np.isfinite(ordered).sum(axis=-1)
    low = np.maximum(known - 1, 0) // 2
    high = np.where(known > FEW, known // 2, low)
    picked = (_take(ordered, low) + _take(ordered, np.minimum(high, size - 1))) / 2
    return np.asarray(np.where(known > 0, picked, np.nan))


def _take(values: Floats, index: Any) -> Floats:
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def reference(values: Floats, axes: int | tuple[int, ...]) -> Floats:
    """Return what healthy members show: the median of many, the lower third of up to `HALVES`.

    A node can hold half of the members of a small group, and the median then lies between the
    slow and the healthy ones.
    """
    axes = (axes,) if isinstance(axes, int) else axes
    size = int(np.prod([values.shape[axis] for axis in axes]))
    return median(values, axes) if size > HALVES else lower(values, axes, LOWER_THIRD)


def lower(values: Floats, axes: tuple[int, ...], share: float) -> Floats:
    """Return the entry below which a share of the known ones lies, with axes kept at length one."""
    kept = tuple(axis for axis in range(values.ndim) if axis not in axes)
    ordered = np.sort(_flat(values, kept, axes), axis=-1)
    known = np.isfinite(ordered).sum(axis=-1)
    index = (np.maximum(known - 1, 0) * share).astype(np.int64)
    return _take(ordered, index).reshape(_kept_shape(values, axes))


LOWER_THIRD = 0.35
"""Below it are healthy members even if half of them are slow."""


HALVES = 32
"""Size of a group up to which one node of 8, or one of two, may be half of it."""


def mean(values: Floats, axis: int = 0) -> Floats:
    """Return the mean over an axis without the missing entries, NaN where nothing is known."""
    plain = values.sum(axis=axis)
    if np.isfinite(plain).all():
        return np.asarray(plain / values.shape[axis])
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def spread(values: Floats, axis: int = 0) -> Floats:
    """Return the standard deviation over an axis without the missing entries."""
    centre = np.expand_dims(mean(values, axis), axis)
    return np.asarray(np.sqrt(mean((values - centre) ** 2, axis)))


def typical(values: Floats) -> float:
    """Return the median of all known entries, 0 where there is none."""
    known = values.ravel()
    if not np.isfinite(known.sum()):
        known = known[np.isfinite(known)]
    if not known.size:
        return 0.0
    low, high = (known.size - 1) // 2, known.size // 2
    ordered = np.partition(known, sorted({low, high}))
    return float(ordered[low] + ordered[high]) / 2
