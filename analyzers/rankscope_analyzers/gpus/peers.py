"""The medians of each GPU's peers, for all GPUs of a cluster at once.

Peers are GPUs of the same model in the same job, or on the same node if no job is known, that were
equally busy; the judged GPU itself is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rankscope_analyzers.numeric.arrays import Floats, Integers

SIMILAR_UTILIZATION = 0.2
"""Peers whose median utilisation differs by more do other work."""

CROWD = 64
"""From this many peers on the median includes the judged GPU itself."""

MINIMUM_PEERS = 2
"""With a single other GPU it is unknown which of the two deviates."""

Row = Mapping[str, Any]
"""One GPU's row of `throttle.summarize`."""

Normal = Mapping[str, float]
"""Medians of its peers by column, NaN where too few of them are known; empty without peers."""


def comparable(gpus: pd.DataFrame) -> pd.Series[Any]:
    """Return what the GPUs that may be compared have in common: the job, else the node."""
    return gpus["job_id"].where(gpus["job_id"] != "", "\0" + gpus["node"])


def with_peers(gpus: pd.DataFrame) -> Iterator[tuple[Row, Normal]]:
    """Yield each GPU with the medians of its peers, one group of comparable ones after another."""
    numbers = gpus.groupby([comparable(gpus), gpus["model"]], sort=False).ngroup()
    groups = np.asarray(numbers.fillna(-1), dtype=np.int64)  # none if no model is known
    order = np.lexsort((gpus["utilization_ratio"].to_numpy(np.float64), groups))  # unknown is last
    order = order[groups[order] >= 0]
    ordered = gpus.iloc[order]
    names = list(ordered.select_dtypes("number").columns)
    first, end = _spans(groups[order], ordered["utilization_ratio"].to_numpy(np.float64))
    medians = _medians_of_peers(ordered[names].to_numpy(np.float64), first, end).tolist()
    alone = end - first - 1 < MINIMUM_PEERS
    rows: list[Row] = ordered.to_dict("records")  # type: ignore[assignment]
    for row, normal, without in zip(rows, medians, alone.tolist(), strict=True):
        yield row, {} if without else dict(zip(names, normal, strict=True))


def _spans(groups: Integers, busy: Floats) -> tuple[Integers, Integers]:
    """Return where the peers of each GPU begin and end, itself among them.

    In the order of utilisation, peers are neighbours. Those of unknown utilisation, which are the
    last of their group, are each other's.
    """
    first, end = np.empty(len(busy), dtype=np.int64), np.empty(len(busy), dtype=np.int64)
    begins = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    for begin, after in zip(begins, [*begins[1:], len(busy)], strict=True):
        known = begin + int(np.isfinite(busy[begin:after]).sum())
        of = busy[begin:known]
        first[begin:known] = begin + np.searchsorted(of, of - SIMILAR_UTILIZATION, side="left")
        end[begin:known] = begin + np.searchsorted(of, of + SIMILAR_UTILIZATION, side="right")
        first[known:after], end[known:after] = known, after
    return first, end


def _medians_of_peers(values: Floats, first: Integers, end: Integers) -> Floats:
    """Return the medians of each GPU's peers (N, columns).

    Among many peers one more or less does not move the median: those of a crowd are computed once.
    """
    found = np.full(values.shape, np.nan)
    sizes = end - first
    for size in np.unique(sizes[sizes <= CROWD]):
        rows = np.flatnonzero(sizes == size)
        peers = first[rows, np.newaxis] + np.arange(size)
        own = peers == rows[:, np.newaxis]
        for column, of in enumerate(values.T):
            found[rows, column] = _medians(np.where(own, np.nan, of[peers]))
    crowds: dict[tuple[int, int], Floats] = {}
    for row in np.flatnonzero(sizes > CROWD):
        span = int(first[row]), int(end[row])
        if span not in crowds:
            crowds[span] = _medians(values[slice(*span)].T)
        found[row] = crowds[span]
    return found


def _medians(values: Floats) -> Floats:
    """Return the median of each row's known values, NaN for rows with too few of them."""
    ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=1)  # NaN comes last
    known = np.isfinite(ordered).sum(axis=1)
    rows = np.arange(len(ordered))
    middle = ordered[rows, np.maximum(known - 1, 0) // 2] + ordered[rows, known // 2]
    return np.where(known >= MINIMUM_PEERS, middle / 2, np.nan)
