"""Sums, extremes and medians of values by group: pandas' groupby, faster for rows of one job.

Groups are numbers from 0; a value with a negative group belongs to none. NaN is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers


def numbers(*keys: Integers) -> tuple[Integers, int]:
    """Return the group of each row (n,) and how many there are; rows with equal keys are together.

    Args:
        keys: (n,) each; groups are in ascending order of the keys, the first one first.
    """
    groups = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        values, inner = np.unique(key, return_inverse=True)
        groups = np.unique(groups * len(values) + inner, return_inverse=True)[1]
    return groups, int(groups.max(initial=-1)) + 1


def sums(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the sum of the known values of each group (count,), NaN where there are none."""
    known = _known(groups, values)
    numbers = np.bincount(groups[known], minlength=count)
    total = np.bincount(groups[known], weights=values[known], minlength=count)
    return np.where(numbers > 0, total, np.nan)


def means(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the mean of the known values of each group (count,), NaN where there are none."""
    numbers = np.bincount(groups[_known(groups, values)], minlength=count)
    return sums(groups, values, count) / np.maximum(numbers, 1)


def spans(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the range of the known values of each group (count,), NaN where there are none."""
    known = _known(groups, values)
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, groups[known], values[known])
    np.maximum.at(highest, groups[known], values[known])
    return np.where(np.isfinite(lowest), highest - np.where(np.isfinite(lowest), lowest, 0), np.nan)


def largest(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the largest known value of each group (count,), NaN where there are none."""
    known = _known(groups, values)
    found = np.full(count, np.nan)
    np.fmax.at(found, groups[known], values[known])
    return found


def smallest(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the smallest known value of each group (count,), NaN where there are none."""
    return -largest(groups, -values, count)


def medians(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the median of the known values of each group (count,), NaN where there are none."""
    ordered, begins, sizes = _ordered(groups, values, count)
    lower, upper = begins + (sizes - 1) // 2, begins + sizes // 2
    return _where_any(sizes, lambda some: (ordered[lower[some]] + ordered[upper[some]]) / 2)


def lower_medians(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the medians, but for an even number of values the lower of the middle two."""
    ordered, begins, sizes = _ordered(groups, values, count)
    return _where_any(sizes, lambda some: ordered[(begins + (sizes - 1) // 2)[some]])


def distinct(groups: Integers, keys: Integers, count: int) -> Integers:
    """Return how many different keys each group has (count,)."""
    _, first = np.unique(numbers(groups, keys)[0], return_index=True)
    return np.bincount(groups[first], minlength=count)


def increases(groups: Integers, values: Floats, count: int) -> Floats:
    """Return the increase of a counter in each group (count,), NaN where it has no two values.

    A counter that falls was reset, and its increase is its new value.

    Args:
        groups: (n,) of the values.
        values: (n,) in order of time within each group.
        count: number of groups.
    """
    order = np.flatnonzero(_known(groups, values))
    order = order[np.argsort(groups[order], kind="stable")]
    groups, values = groups[order], values[order]
    same = groups[1:] == groups[:-1]
    grown = np.diff(values)
    grown = np.where(grown < 0, values[1:], grown)
    return sums(groups[1:][same], grown[same], count)


def _ordered(groups: Integers, values: Floats, count: int) -> tuple[Floats, Integers, Integers]:
    """Return known values by group and size, where each group begins, and how many it has."""
    known = np.flatnonzero(_known(groups, values))
    order = known[np.lexsort((values[known], groups[known]))]
    sizes = np.bincount(groups[order], minlength=count)
    return values[order], np.cumsum(sizes) - sizes, sizes


def _where_any(sizes: Integers, of: Callable[[Booleans], Floats]) -> Floats:
    found = np.full(len(sizes), np.nan)
    some = sizes > 0
    found[some] = of(some)
    return found


def _known(groups: Integers, values: Floats) -> Booleans:
    known: Booleans = (groups >= 0) & np.isfinite(values)
    return known
