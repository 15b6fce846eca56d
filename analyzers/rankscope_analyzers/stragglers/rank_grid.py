"""Arrange the ranks of a run by the groups in their records.

In the trace contract dp_group = pp_stage * TP + t and tp_group = pp_stage * DP + d. Here it only
matters that ranks with the same number are in the same group, in any order of ranks. If the groups
form no grid, ranks are compared within their stages, or all with each other.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Integers
from rankscope_analyzers.steps.layout import ReportedGroups

MINIMUM_FILLED = 0.5
"""Share of the positions that ranks must fill: a node may be silent, but a mostly empty grid is
wrong."""

MAXIMUM_CONTRADICTING = 0.1
"""Share of the records that may have another group than their rank's first one, as stray records
do. If more do, groups are no arrangement."""

MAXIMUM_PADDING = 4
"""Positions per rank, at most, if stages are of unequal size."""


def grid(reported: ReportedGroups) -> Integers:
    """Return (P, D, T) the rank at each position, -1 where there is none.

    Args:
        reported: groups in the run's first records; of several of one rank the first counts.
    """
    ranks, first = np.unique(reported.rank, return_index=True)
    groups = {name: values[first] for name, values in reported.columns.items()}
    if is_contradicting(reported):
        return _flat(ranks)
    if len(groups) < len(GROUP_COLUMNS) or any((values < 0).any() for values in groups.values()):
        return _flat(ranks)
    stage = _numbered(groups["pp_stage"])
    replica = _within(stage, groups["tp_group"])
    tensor = _within(stage, groups["dp_group"])
    return _filled(ranks, stage, replica, tensor)


GROUP_COLUMNS = ("pp_stage", "tp_group", "dp_group")


def is_contradicting(reported: ReportedGroups) -> bool:
    """Return True if the groups of ranks change from record to record."""
    _, first, rank = np.unique(reported.rank, return_index=True, return_inverse=True)
    other = np.zeros(len(reported.rank), dtype=np.bool_)
    for values in reported.columns.values():
        other |= values != values[first][rank]
    return float(other.mean()) > MAXIMUM_CONTRADICTING


def _numbered(values: Integers) -> Integers:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _within(stage: Integers, group: Integers) -> Integers:
    """Return the index of each rank's group within its stage.

    If a whole group of a stage is silent, the index is the distance from the number of the stage's
    first group, provided that stages are numbered consecutively.
    """
    numbers = np.zeros(len(stage), dtype=np.int64)
    sizes = [len(np.unique(group[stage == number])) for number in range(int(stage.max()) + 1)]
    most = max(sizes)
    for number, size in enumerate(sizes):
        inside = stage == number
        offset = group[inside] - number * most
        full = size == most or offset.min() < 0 or offset.max() >= most
        numbers[inside] = _numbered(group[inside]) if full else offset
    return numbers


def _filled(ranks: Integers, stage: Integers, replica: Integers, tensor: Integers) -> Integers:
    """Put ranks into their positions; by stage alone if two ranks have the same position."""
    sizes = tuple(int(values.max()) + 1 for values in (stage, replica, tensor))
    if len(ranks) < MINIMUM_FILLED * np.prod(sizes, dtype=np.float64):
        return _staged(ranks, stage)
    positions = np.ravel_multi_index((stage, replica, tensor), sizes)
    if len(np.unique(positions)) < len(ranks):
        return _staged(ranks, stage)
    cells = np.full(int(np.prod(sizes)), -1, dtype=np.int64)
    cells[positions] = ranks
    return cells.reshape(sizes)


def _staged(ranks: Integers, stage: Integers) -> Integers:
    """Return ranks by stage, in order within each; as one stage if that is too sparse."""
    count = np.bincount(stage)
    if len(count) * int(count.max()) > MAXIMUM_PADDING * len(ranks):
        return _flat(ranks)
    cells = np.full((len(count), int(count.max()), 1), -1, dtype=np.int64)
    for number, size in enumerate(count.tolist()):
        cells[number, :size, 0] = ranks[stage == number]
    return cells


def _flat(ranks: Integers) -> Integers:
    return ranks.reshape(1, -1, 1)
