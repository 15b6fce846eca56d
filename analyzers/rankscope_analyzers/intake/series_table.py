"""Series of many objects, such as GPUs or ports, as a table: one row per object and time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.numeric.arrays import Floats

Thing = tuple[str, ...]
"""The identity of an object: its values of some text columns."""


def table(
    cells: Iterable[tuple[Thing, str, Series]], names: Sequence[str], time: str
) -> pd.DataFrame:
    """Return the values of series by object and moment.

    Args:
        cells: an object, a column, and a series for that cell; several series in one cell are
            summed.
        names: text columns, one for each part of an object's identity.
        time: name of the column of times, Unix seconds.

    Returns:
        Columns of `names`, `time` and those of the cells, NaN where an object has no value.
    """
    things: dict[Thing, list[tuple[str, Series]]] = defaultdict(list)
    for thing, column, series in cells:
        things[thing].append((column, series))
    moments = [_moments([series for _, series in several]) for several in things.values()]
    counts = [len(times) for times in moments]
    values: dict[str, Floats] = defaultdict(lambda: np.full(sum(counts), np.nan))
    start = 0
    for times, several in zip(moments, things.values(), strict=True):
        _fill(values, start, times, several)
        start += len(times)
    texts = {
        name: np.repeat(np.array([thing[part] for thing in things], dtype=object), counts)
        for part, name in enumerate(names)
    }
    moment = np.concatenate(moments) if moments else np.empty(0)
    return pd.DataFrame({time: moment, **texts, **values})


def _moments(several: Sequence[Series]) -> Floats:
    """Return the times at which any of an object's series has a value, ascending."""
    first = several[0].times
    if all(series.times is first for series in several):  # usually from the pages of one node
        return first
    return np.unique(np.concatenate([series.times for series in several]))


def _fill(
    values: dict[str, Floats], start: int, times: Floats, several: Sequence[tuple[str, Series]]
) -> None:
    filled: set[str] = set()
    for column, series in several:
        rows = values[column][start : start + len(times)]
        if series.times is times and column not in filled:
            rows[:] = series.values
        else:
            indices = np.searchsorted(times, series.times)
            before = rows[indices]
            rows[indices] = np.where(np.isnan(before), 0.0, before) + series.values
        filled.add(column)
