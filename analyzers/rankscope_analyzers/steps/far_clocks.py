"""Nodes whose clocks are seconds to hours apart: their records are moved to where the others' are.

All ranks of a synchronous job end a step at one moment. Where a node's clock names another one,
step after step and always by as much, its records would be taken for another run of the job. What
is a fraction of a step is another subject: `clocks`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import CLOCK, COUNTERS, DURATIONS, MAXIMUM_RANK

FAR_SECONDS, FAR_STEPS = 1.0, 2.0
"""Records of one step are put together if they are less far apart than either."""

FEWEST_STEPS = 8
"""Common steps from which an offset is taken."""

NEWEST_STEPS = 256
"""Steps that are compared."""

STEADY_SHARE = 0.1
"""Part of an offset by which it may vary from step to step; else it is no clock's."""

DIGITS = 1
"""Decimal places of an offset in seconds: at the next look it is the same."""

NEEDS = frozenset((*COUNTERS, "node", CLOCK, DURATIONS[0]))


def ahead(records: pd.DataFrame) -> Mapping[str, float]:
    """Return by how many seconds nodes' clocks are ahead of the others', of those far apart.

    Args:
        records: of one job, in any order, usable or not.
    """
    if len(records) < 2 * FEWEST_STEPS or not set(records.columns) >= NEEDS:
        return {}
    node, known_names = pd.factorize(records["node"])
    names = [str(name) for name in known_names]
    lasted = step_records.numeric(records[DURATIONS[0]]).astype(np.float64)
    ends = step_records.numeric(records[CLOCK]).astype(np.float64) + lasted
    ends[(node < 0) | ~(lasted >= 0) | ~(np.abs(ends) <= step_records.LATEST_SECONDS)] = np.nan
    known = np.isfinite(ends)
    if len(names) < 2 or not known.any():
        return {}
    far = max(FAR_SECONDS, FAR_STEPS * float(np.median(lasted[known])))
    newest = np.full(len(names), -np.inf)
    np.maximum.at(newest, node[known], ends[known])
    newest = newest[np.isfinite(newest)]
    if float(newest.max() - newest.min()) <= far:
        return {}
    table = _ends_by_node(records, node, ends, len(names))
    found = _offsets(table, far)
    return {names[one]: float(found[one]) for one in np.flatnonzero(found)}


def moved(records: pd.DataFrame, by_node: Mapping[str, float]) -> pd.DataFrame:
    """Return records with the times of some nodes put back by so many seconds."""
    if not by_node or not {"node", CLOCK} <= set(records.columns):
        return records
    by = records["node"].map(by_node).fillna(0.0)
    starts = pd.to_numeric(records[CLOCK], errors="coerce") - by
    return records.assign(**{CLOCK: starts})


def _ends_by_node(records: pd.DataFrame, node: Integers, ends: Floats, nodes: int) -> Floats:
    """Return (steps, nodes) when the newest steps ended by each node's clock, NaN if unknown.

    One rank speaks for its node: the one with most records.
    """
    rank, step, attempt = (
        step_records.numeric(records[name]).astype(np.float64)
        if name in records.columns
        else np.zeros(len(records))
        for name in ("rank", "step", "attempt")
    )
    attempt = np.nan_to_num(attempt, posinf=0.0, neginf=0.0)
    keep = np.isfinite(ends) & np.isfinite(step) & (rank >= 0) & (rank <= MAXIMUM_RANK)
    chosen = pd.DataFrame({"node": node, "rank": rank, "step": step, "attempt": attempt,
                           "end": ends})[keep]  # fmt: skip
    counts = chosen.groupby(["node", "rank"]).size()
    fullest = counts.reset_index(name="records").sort_values("records", kind="stable")
    fullest = fullest.drop_duplicates("node", keep="last")[["node", "rank"]]
    chosen = chosen.merge(fullest, on=["node", "rank"])
    table = chosen.drop_duplicates(["node", "attempt", "step"]).pivot(
        index=["attempt", "step"], columns="node", values="end"
    )
    common = table[table.notna().sum(axis=1) >= 2].sort_index().tail(NEWEST_STEPS)
    return common.reindex(columns=range(nodes)).to_numpy(np.float64)


def _offsets(table: Floats, far: float) -> Floats:
    """Return (nodes,) by how many seconds each clock is ahead, 0 where that is not far.

    The middle one of the clocks is right: of two, the one that is behind.
    """
    ordered = np.sort(table, axis=1)  # NaN comes last
    middle = (np.isfinite(table).sum(axis=1) - 1) // 2
    apart = table - np.take_along_axis(ordered, middle[:, None], axis=1)
    found = np.zeros(table.shape[1])
    for column in range(table.shape[1]):
        known = apart[np.isfinite(apart[:, column]), column]
        if len(known) < FEWEST_STEPS:
            continue
        seconds = float(np.median(known))
        spread = NORMAL_CONSISTENCY * float(np.median(np.abs(known - seconds)))
        if abs(seconds) > far and spread < max(STEADY_SHARE * abs(seconds), FAR_SECONDS):
            found[column] = round(seconds, DIGITS)
    return found
