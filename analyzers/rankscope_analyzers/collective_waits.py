"""How long each rank waited for the others in its collectives, from when each of them arrived.

In: launches of all ranks, as Flight Recorders have them. A rank that arrives at a collective waits
until the last one has arrived too; a step's wait is the union of these intervals, since several
collectives can be under way at once. What is transferred afterwards is not in it.

A collective that does not block keeps its lateness for the next one: a rank that is 30 ms late at
the first of ten buckets of gradients is 30 ms late at all of them, and its peers wait 30 ms, not
300. So of a group's all-reduces only that counts by which the lateness falls until the next one, or
until the step's end: that much was waited in between. The all-reduces of a tensor-parallel group do
block, each of them.

Two ways of knowing an arrival's lateness: from the launch times of hosts, which must be on one
clock (`clocks`), or from durations on the device, where waiting for peers is part of a duration, so
that the shortest one is the last to arrive and no clock is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rankscope_analyzers.arrays import Floats
from rankscope_analyzers.clocks import ClockOffset
from rankscope_analyzers.intervals import covered, union

PAIRING_SECONDS = 60.0
"""Launches of one number further apart are not of one collective: a restarted rank counts anew."""

KEEPS_LATENESS = "all_reduce"
"""Operations that do not block by themselves where gradients are reduced: allreduce, coalesced or
not, begins with this word in all backends' names."""

LAUNCH_COLUMNS = ("rank", "group", "operation", "seq", "time", "duration")


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits per rank and step.

    Args:
        table: columns rank, step_start (the record's own start), wait in seconds.
        late: seconds by which each rank comes last, per step that was seen, by rank.
    """

    table: pd.DataFrame
    late: Mapping[int, float]


def lateness(launches: pd.DataFrame, offsets: Mapping[int, ClockOffset]) -> pd.DataFrame:
    """Return launches with `waited`, how long each waited for its collective's last rank.

    Args:
        launches: `LAUNCH_COLUMNS`; time in Unix seconds of the rank's node, duration in seconds or
            NaN where it was not measured.
        offsets: of the clocks of ranks' nodes; ranks that are not in it have none.
    """
    launches = launches.drop_duplicates(["rank", "group", "seq"], keep="last")
    shift = pd.Series(0.0, index=launches.index)
    for rank, of_rank in launches.groupby("rank"):
        if rank in offsets:
            shift[of_rank.index] = offsets[int(str(rank))].at(of_rank["time"].to_numpy())
    arrival = launches["time"] - shift
    found = launches.assign(arrival=arrival)
    members = found.groupby("group")["rank"].nunique()
    same = found.groupby(["group", "seq"])
    last, first = same["arrival"].transform("max"), same["arrival"].transform("min")
    whole = same["rank"].transform("size") == found["group"].map(members)
    whole &= same["operation"].transform("nunique") == 1
    whole &= last - first < PAIRING_SECONDS
    timed = same["duration"].transform("count") == same["rank"].transform("size")
    by_device = found["duration"] - same["duration"].transform("min")
    found["waited"] = np.where(timed, by_device, last - arrival)
    found["others"] = _mean_of_others(found)
    return found.assign(
        whole=whole & (members.loc[found["group"]].to_numpy() > 1),
        alone=members.loc[found["group"]].to_numpy() == 1,
        timed=timed,
    )


def _mean_of_others(found: pd.DataFrame) -> Floats:
    """Return how long the ranks of a collective waited for its last one, which did not wait."""
    waited = found.groupby(["group", "seq"])["waited"]
    others = np.maximum(waited.transform("size").to_numpy() - 1, 1)
    return np.asarray(waited.transform("sum").to_numpy() / others, dtype=np.float64)


def by_step(
    found: pd.DataFrame, steps: pd.DataFrame, blocking: frozenset[str], windows: pd.DataFrame
) -> Waits:
    """Sum up the waits of each rank's steps that lie wholly in windows.

    Args:
        found: what `lateness` returns.
        steps: columns rank, start and end of each step, on the clock of the rank's node.
        blocking: groups whose all-reduces block.
        windows: columns rank, begin and end, on that clock too.
    """
    parts, late = [], {}
    for rank, own_steps in steps.groupby("rank"):
        ordered = own_steps.sort_values("start")
        spans = ordered[["start", "end"]].to_numpy(np.float64)
        seen = _inside(spans, windows[windows["rank"] == rank])
        own = found[found["rank"] == rank].sort_values("time")
        known, waited, last = _rank_waits(own, spans, blocking)
        kept = seen & known
        parts.append(pd.DataFrame({"rank": rank, "start": spans[kept, 0], "waited": waited[kept]}))
        if kept.any():
            late[int(str(rank))] = float(last[kept].mean())
    empty = pd.DataFrame({"rank": [], "start": [], "waited": []})
    return Waits(pd.concat(parts or [empty], ignore_index=True), late)


def _inside(spans: Floats, windows: pd.DataFrame) -> np.ndarray:
    """Say which spans lie wholly in the windows, adjoining ones taken as one."""
    disjoint = union(windows[["begin", "end"]].to_numpy(np.float64), bridging=1e-6)
    length = spans[:, 1] - spans[:, 0]
    return covered(disjoint, spans) >= length - 1e-6


def _rank_waits(
    own: pd.DataFrame, spans: Floats, blocking: frozenset[str]
) -> tuple[np.ndarray, Floats, Floats]:
    """Return for each step: all its collectives are known, its wait, by how much it came last."""
    times = own["time"].to_numpy(np.float64)
    step = np.searchsorted(spans[:, 0], times, side="right") - 1
    inside = (step >= 0) & (times < spans[np.maximum(step, 0), 1])
    own, step = own[inside], step[inside]
    count = len(spans)
    unknown = ~(own["whole"] | own["alone"]).to_numpy(np.bool_)
    known = np.bincount(step[unknown], minlength=count) == 0
    waited = np.where(own["whole"], own["waited"], 0.0)
    keeps = own["operation"].str.startswith(KEEPS_LATENESS) & ~own["group"].isin(blocking)
    fallen = _fallen(waited, step, own["group"].to_numpy(), keeps.to_numpy(np.bool_))
    # On the clock of the collective, an interval ends when the last rank has arrived.
    end = own["time"].to_numpy(np.float64) + waited
    total = covered(union(np.column_stack([end - fallen, end])), spans)
    last = np.where((waited == 0) & own["whole"], own["others"], 0.0)
    late = np.zeros(count)
    np.maximum.at(late, step, last)
    return known, total, late


def _fallen(waited: Floats, step: np.ndarray, group: np.ndarray, keeps: np.ndarray) -> Floats:
    """Return of each wait the part that was really waited before the group's next collective."""
    fallen = waited.copy()
    for name in np.unique(group[keeps].astype(str)):
        rows = np.flatnonzero(keeps & (group == name))
        following = np.append(waited[rows[1:]], 0.0)
        following[np.append(step[rows[1:]] != step[rows[:-1]], True)] = 0.0
        fallen[rows] = np.maximum(0.0, waited[rows] - following)
    return fallen
