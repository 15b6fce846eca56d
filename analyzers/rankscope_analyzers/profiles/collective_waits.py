"""How long each rank waited for others in collectives, from the ranks' arrival times.

Input: launches of all ranks, as Flight Recorders have them. A rank that arrives at a collective
waits until the last one has arrived too; a step's wait is the union of these intervals, since
several collectives can be under way at once. The transfer that follows is not included.

A collective that does not block passes its lateness on to the next one: a rank that is 30 ms late
at the first of ten buckets of gradients is 30 ms late at all of them, and its peers wait 30 ms, not
300. So of a group's all-reduces only the amount counts by which the lateness falls until the next
one, or until the step's end: that much was waited in between. Each all-reduce of a tensor-parallel
group does block.

There are two ways to determine an arrival's lateness: from the launch times of hosts, which must be
on one clock (`clocks`), or from durations on the device, where waiting for peers is part of a
duration, so that the shortest one is the last to arrive and no clock is needed. On the device a
group's collectives run one after the other, so that lateness is waited for once and waits are
summed up. If the host only queues collectives, its launch times say nothing about the device's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.intervals import covered, union
from rankscope_analyzers.steps.clocks import ClockOffset

PAIRING_SECONDS = 60.0
"""Launches with the same number that are further apart are not of one collective: a restarted rank
counts again from the start."""

KEEPS_LATENESS = "all_reduce"
"""Operations that do not block by themselves where gradients are reduced: allreduce, coalesced or
not, begins with this word in all backends' names."""

CLOCK_RESOLUTION = 1e-6
"""Seconds to which times of today can be distinguished as floats, with a margin of four."""

LAUNCH_COLUMNS = ("rank", "group", "operation", "seq", "time", "duration", "enqueued")

NUMBER = ["group", "seq"]
"""What the launches of one collective have in common."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits per rank and step.

    Args:
        table: columns rank, start (the record's own), waited in seconds, and timed, whether that
            was measured on the device.
        late: seconds by which the host of each rank is last at a step's collectives, by rank.
    """

    table: pd.DataFrame
    late: Mapping[int, float]


def lateness(launches: pd.DataFrame, offsets: Mapping[int, ClockOffset]) -> pd.DataFrame:
    """Return launches with what the other ranks of their collective show about them.

    Columns that are added: `waited`, how long the launch waited for its collective's last rank;
    `others`, how long the others of its collective did on average; `timed`, all its ranks were
    measured on the device; `known`, `waited` is reliable; `arrived`, `others` is.

    Args:
        launches: `LAUNCH_COLUMNS`; time in Unix seconds of the rank's node, duration in seconds or
            NaN if it was not measured, seq below 0 for entries that are not collectives, and
            `enqueued` if the host only queues a collective, so that its time is not the device's.
        offsets: of the clocks of ranks' nodes; ranks that are not in it have none.
    """
    newest = ~launches.duplicated(["rank", *NUMBER], keep="last")
    found = launches.join(_paired(launches[(launches["seq"] >= 0) & newest], offsets))
    for name in ("timed", "known", "arrived"):
        found[name] = found[name].eq(True)
    # A coalesced operation has several entries with one number; a restarted rank counts again.
    again = launches.groupby(["rank", *NUMBER])["time"].transform("max") - launches["time"]
    found["known"] |= (launches["seq"] >= 0) & ~newest & (again < PAIRING_SECONDS)
    return found.fillna({"waited": 0.0, "others": 0.0})


def _paired(launches: pd.DataFrame, offsets: Mapping[int, ClockOffset]) -> pd.DataFrame:
    """Compare each launch with those of the same collective on other ranks."""
    found = launches.assign(arrival=launches["time"] - _ahead(launches, offsets))
    members = found.groupby("group")["rank"].nunique()
    expected = found["group"].map(members)
    same = found.groupby(NUMBER)
    size, last = same["rank"].transform("size"), same["arrival"].transform("max")
    whole = (size == expected) & (same["operation"].transform("nunique") == 1)
    near = whole & (last - same["arrival"].transform("min") < PAIRING_SECONDS)
    timed = whole & (same["duration"].transform("count") == size)
    by_device = found["duration"] - same["duration"].transform("min")
    waited = np.where(timed, by_device, last - found["arrival"])
    waited = np.where(whole & (timed | near), waited, 0.0)
    late = found.assign(late=last - found["arrival"]).groupby(NUMBER)["late"]
    return pd.DataFrame(
        {
            "waited": waited,
            "others": late.transform("sum") / np.maximum(size - 1, 1),
            "timed": timed,
            "known": timed | (near & ~launches["enqueued"]) | (expected == 1),
            "arrived": near & (found["arrival"] == last) & (expected > 1),
        }
    )


def _ahead(launches: pd.DataFrame, offsets: Mapping[int, ClockOffset]) -> pd.Series[float]:
    """Return by how much the clock of each launch's node is ahead."""
    ahead = pd.Series(0.0, index=launches.index)
    for rank, of_rank in launches.groupby("rank"):
        if rank in offsets:
            ahead[of_rank.index] = offsets[int(str(rank))].at(of_rank["time"].to_numpy())
    return ahead


def by_step(
    found: pd.DataFrame, steps: pd.DataFrame, blocking: frozenset[str], windows: pd.DataFrame
) -> Waits:
    """Sum up the waits of each rank's steps that lie wholly in windows.

    Args:
        found: the result of `lateness`.
        steps: columns rank, start and end of each step, on the clock of the rank's node.
        blocking: groups whose all-reduces block.
        windows: columns rank, begin and end, on that clock too.
    """
    parts, late = [], {}
    launches, recorded = dict(list(found.groupby("rank"))), dict(list(windows.groupby("rank")))
    for rank, own_steps in steps.groupby("rank"):
        spans = own_steps.sort_values("start")[["start", "end"]].to_numpy(np.float64)
        seen = _inside(spans, recorded.get(rank, windows.iloc[:0]))
        own = launches.get(rank, found.iloc[:0]).sort_values("time")
        of_steps = _rank_waits(own, spans, blocking)
        parts.append(of_steps[seen & of_steps["known"]].assign(rank=rank))
        if seen.any():
            late[int(str(rank))] = float(of_steps["late"][seen].mean())
    columns = ["rank", "start", "waited", "timed"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return Waits(table[columns], late)


def _inside(spans: Floats, windows: pd.DataFrame) -> Booleans:
    """Return which spans lie wholly in the windows, adjoining ones taken as one."""
    disjoint = union(windows[["begin", "end"]].to_numpy(np.float64), bridging=CLOCK_RESOLUTION)
    missing = spans[:, 1] - spans[:, 0] - covered(disjoint, spans)
    return np.asarray(missing <= CLOCK_RESOLUTION, dtype=np.bool_)


def _rank_waits(own: pd.DataFrame, spans: Floats, blocking: frozenset[str]) -> pd.DataFrame:
    """Return for each step of a rank its wait, by how much it was last, and what is known."""
    times = own["time"].to_numpy(np.float64)
    step = np.searchsorted(spans[:, 0], times, side="right") - 1
    inside = (step >= 0) & (times < spans[np.maximum(step, 0), 1])
    own = own[inside].assign(step=step[inside])
    count = len(spans)
    timed = np.bincount(own.loc[own["timed"], "step"], minlength=count) > 0
    late = np.zeros(count)
    last = own[own["arrived"]]
    np.maximum.at(late, last["step"].to_numpy(np.int64), last["others"].to_numpy(np.float64))
    waited = _on_device(own[own["timed"]], count) + _on_host(own[~own["timed"]], spans, blocking)
    return pd.DataFrame(
        {
            "start": spans[:, 0],
            "waited": waited,
            "timed": timed,
            "known": np.bincount(own.loc[~own["known"], "step"], minlength=count) == 0,
            "late": late,
        }
    )


def _on_device(own: pd.DataFrame, count: int) -> Floats:
    """Return (count,) waits on the device: sequential in a group, concurrent across groups."""
    waits = np.zeros(count)
    for _, of_group in own.groupby("group"):
        summed = np.bincount(of_group["step"], weights=of_group["waited"], minlength=count)
        waits = np.maximum(waits, summed)
    return waits


def _on_host(own: pd.DataFrame, spans: Floats, blocking: frozenset[str]) -> Floats:
    """Return how long a rank's host waited in each step; concurrent waits count once."""
    waited = own["waited"].to_numpy(np.float64)
    keeps = own["operation"].str.startswith(KEEPS_LATENESS) & ~own["group"].isin(blocking)
    groups, step = own["group"].to_numpy(), own["step"].to_numpy(np.int64)
    fallen = _fallen(waited, step, groups, keeps.to_numpy(np.bool_))
    # An interval ends when the last rank has arrived, on the clock of the waiting rank's node.
    end = own["time"].to_numpy(np.float64) + waited
    return covered(union(np.column_stack([end - fallen, end])), spans)


def _fallen(waited: Floats, step: Integers, group: Any, keeps: Booleans) -> Floats:
    """Return for each wait the part that was really waited before the group's next collective."""
    fallen = waited.copy()
    for name in np.unique(group[keeps].astype(str)):
        rows = np.flatnonzero(keeps & (group == name))
        following = np.append(waited[rows[1:]], 0.0)
        following[np.append(step[rows[1:]] != step[rows[:-1]], True)] = 0.0
        fallen[rows] = np.maximum(0.0, waited[rows] - following)
    return fallen
