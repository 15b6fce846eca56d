"""Nodes and ranks whose clocks are seconds to hours apart, and the correction of their records.

All ranks of a synchronous job end a step at the same moment. If a node's clock consistently
disagrees by the same amount, its records would be taken for another run of the job. The same
happens with a single rank whose container has a different time from the others on its node. Offsets
of a fraction of a step are the subject of `clocks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import CLOCK, COUNTERS, DURATIONS, MAXIMUM_RANK

FAR_SECONDS, FAR_STEPS = 1.0, 2.0
"""Records of one step are matched if they are less far apart than either."""

FEWEST_STEPS = 8
"""Common steps that an offset is computed from."""

NEWEST_STEPS = 256
"""Steps that are compared."""

STEADY_SHARE = 0.1
"""Fraction of an offset by which it may vary from step to step; beyond it is no clock offset."""

DIGITS = 1
"""Decimal places of an offset in seconds, so that it is the same at the next look."""

NEEDS = frozenset((*COUNTERS, "node", CLOCK, DURATIONS[0]))

_RANKS = MAXIMUM_RANK + 1


@dataclass(frozen=True, slots=True)
class Apart:
    """Seconds by which clocks are ahead of the others, for those far apart.

    Args:
        nodes: by name; offsets of all ranks of a node.
        ranks: by node and rank; offsets of single ranks whose neighbours have another time.
    """

    nodes: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[tuple[str, int], float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return True if there is any."""
        return bool(self.nodes or self.ranks)


NONE = Apart()


@dataclass(frozen=True, slots=True)
class _Ends:
    """When steps ended, from all records that have a time.

    Args:
        place: (n,) index of each record's rank on its node.
        places: (k,) the node's index times `_RANKS` plus the rank, for each index.
        step: (n,) index of attempt and step, ascending with them.
        seconds: (n,) Unix time.
    """

    place: Integers
    places: Integers
    step: Integers
    seconds: Floats


def ahead(records: pd.DataFrame) -> Apart:
    """Return the clocks that are far apart from the others.

    Args:
        records: of one job, in any order, usable or not.
    """
    if len(records) < 2 * FEWEST_STEPS or not set(records.columns) >= NEEDS:
        return NONE
    node, names = pd.factorize(records["node"])
    lasted = step_records.numeric(records[DURATIONS[0]]).astype(np.float64)
    ends = step_records.numeric(records[CLOCK]).astype(np.float64) + lasted
    rank = step_records.numeric(records["rank"]).astype(np.float64)
    known = (node >= 0) & (lasted >= 0) & (np.abs(ends) <= step_records.LATEST_SECONDS)
    known &= (rank >= 0) & (rank < _RANKS) & (rank == np.floor(rank))
    if not known.any():
        return NONE
    far = max(FAR_SECONDS, FAR_STEPS * float(np.median(lasted[known])))
    place, places = pd.factorize(_rank_on_node(node[known], rank[known]).astype(np.int64))
    newest = np.full(len(places), -np.inf)
    np.maximum.at(newest, place, ends[known])
    # A rank with the right time ended the newest step along with the others, or has left by now.
    ordered = np.sort(newest)
    middle = ordered[[(len(ordered) - 1) // 2, len(ordered) // 2], None]
    suspects = np.flatnonzero((np.abs(newest - middle) > far).any(axis=0))
    if not len(suspects):
        return NONE
    step = _steps(records[known])
    found = _offsets(_Ends(place, places, step, ends[known]), suspects, far)
    return _by_node(found, places, [str(name) for name in names])


def moved(records: pd.DataFrame, apart: Apart) -> pd.DataFrame:
    """Return records with the times of some nodes and ranks corrected."""
    if not apart or not {"node", "rank", CLOCK} <= set(records.columns):
        return records
    node, names = pd.factorize(records["node"])
    by = np.array([*(apart.nodes.get(str(name), 0.0) for name in names), 0.0])[node]
    index = {str(name): number for number, name in enumerate(names)}
    alone = sorted(
        (_rank_on_node(index[name], rank), seconds)
        for (name, rank), seconds in apart.ranks.items()
        if name in index
    )
    if alone:
        rank = step_records.numeric(records["rank"]).astype(np.float64)
        place = _rank_on_node(node, np.where(np.isfinite(rank), rank, -1.0))
        keys, seconds = np.array(alone).T
        at = np.minimum(np.searchsorted(keys, place), len(keys) - 1)
        by = by + np.where(keys[at] == place, seconds[at], 0.0)
    starts = pd.to_numeric(records[CLOCK], errors="coerce") - by
    return records.assign(**{CLOCK: starts})


def _rank_on_node(node: Any, rank: Any) -> Any:
    """Return one number for a rank on a node; exact in a float, as there are fewer than 2^33."""
    return node * float(_RANKS) + rank


def _steps(records: pd.DataFrame) -> Integers:
    """Return a number for attempt and step of each record, ascending, -1 where none is known."""
    attempt, step = (
        step_records.numeric(records[name]).astype(np.float64)
        if name in records.columns
        else np.zeros(len(records))
        for name in ("attempt", "step")
    )
    restart, _ = pd.factorize(np.nan_to_num(attempt, posinf=0.0, neginf=0.0), sort=True)
    counter, counters = pd.factorize(np.where(np.isfinite(step), step, np.nan), sort=True)
    both = np.where(counter < 0, -1, restart * len(counters) + counter)
    number, known = pd.factorize(both, sort=True)
    return np.asarray(number - int(len(known) > 0 and known[0] < 0), dtype=np.int64)


def _offsets(ends: _Ends, suspects: Integers, far: float) -> Mapping[int, float | None]:
    """Return by how many seconds each rank's clock is ahead; None where that is not far.

    Ranks with too few steps in common with others get None. The median clock is taken as right; of
    two, the one that is behind.
    """
    table = _table(ends)
    apart = table - _lower_middle(table)[:, None]
    measured = np.flatnonzero(np.isfinite(apart).sum(axis=0) >= FEWEST_STEPS)
    found: dict[int, float | None] = dict.fromkeys(measured.tolist())
    for one in np.intersect1d(measured, suspects).tolist():
        known = apart[np.isfinite(apart[:, one]), one]
        seconds = float(np.median(known))
        spread = NORMAL_CONSISTENCY * float(np.median(np.abs(known - seconds)))
        if abs(seconds) > far and spread < max(STEADY_SHARE * abs(seconds), FAR_SECONDS):
            found[one] = seconds
    return found


def _table(ends: _Ends) -> Floats:
    """Return (steps, places) when the newest steps of several ranks ended, NaN if unknown."""
    several = np.flatnonzero(np.bincount(ends.step[ends.step >= 0]) >= 2)
    chosen = several[-NEWEST_STEPS:]
    row = np.full(int(ends.step.max(initial=-1)) + 2, -1, dtype=np.int64)
    row[chosen] = np.arange(len(chosen))
    of_record = row[ends.step]  # a step that is unknown maps to the last one, -1
    kept = np.flatnonzero(of_record >= 0)[::-1]  # the first record of a rank in a step counts
    table = np.full((len(chosen), len(ends.places)), np.nan)
    table[of_record[kept], ends.place[kept]] = ends.seconds[kept]
    return np.asarray(table[np.isfinite(table).sum(axis=1) >= 2])


def _lower_middle(table: Floats) -> Floats:
    """Return the lower median of each row; NaN is skipped."""
    ordered = np.sort(table, axis=1)  # NaN comes last
    middle = np.maximum(np.isfinite(table).sum(axis=1) - 1, 0) // 2
    return np.asarray(np.take_along_axis(ordered, middle[:, None], axis=1)[:, 0])


def _by_node(found: Mapping[int, float | None], places: Integers, names: list[str]) -> Apart:
    """Group the ranks of nodes on which all ranks are ahead by the same time."""
    of_node: dict[int, dict[int, float | None]] = {}
    for one, seconds in found.items():
        of_node.setdefault(int(places[one]) // _RANKS, {})[int(places[one]) % _RANKS] = seconds
    nodes: dict[str, float] = {}
    ranks: dict[tuple[str, int], float] = {}
    for node, several in of_node.items():
        known = [seconds for seconds in several.values() if seconds is not None]
        if known and len(known) == len(several) and max(known) - min(known) <= FAR_SECONDS:
            nodes[names[node]] = round(float(np.median(known)), DIGITS)
        else:
            for rank, seconds in several.items():
                if seconds is not None:
                    ranks[names[node], rank] = round(seconds, DIGITS)
    return Apart(nodes, ranks)
