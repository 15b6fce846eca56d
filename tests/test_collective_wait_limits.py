"""Who is late to a collective, and what belongs together: at each limit and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from flight_launches import Call, Recording
from rankscope_agent.contract.stalls import Call as StalledCall
from rankscope_agent.contract.stalls import GroupCalls
from rankscope_analyzers.hangs.mismatches import mismatches
from rankscope_analyzers.profiles import collective_waits, flight_records


def stalled(rank, operation):
    call = StalledCall(operation, 7, message=False, shape="", done=False, created_unix_seconds=1.0)
    return SimpleNamespace(groups=(GroupCalls("0", "default_pg", (), 7, (call,)),))


def test_of_two_ranks_in_different_collectives_neither_is_blamed():
    calls = {0: "all_reduce", 1: "all_gather", 2: "all_reduce"}
    found = {rank: stalled(rank, name) for rank, name in calls.items()}
    assert [one.differing for one in mismatches(found)] == [(1,)]
    del found[2]
    assert [one.differing for one in mismatches(found)] == [()]


def launches(apart):
    rows = [(rank, "g", "all_reduce", 1, at, np.nan, False) for rank, at in enumerate((0, apart))]
    return pd.DataFrame(rows, columns=list(collective_waits.LAUNCH_COLUMNS))


@pytest.mark.parametrize(("apart", "waited"), [(59.0, 59.0), (61.0, 0.0)])
def test_launches_a_minute_apart_are_not_of_one_collective(apart, waited):
    found = collective_waits.lateness(launches(apart), {})
    assert found["waited"].tolist() == [waited, 0.0]
    assert found["known"].all() == bool(waited)


@pytest.mark.parametrize(("gap", "seen"), [(0.8e-6, True), (1.5e-6, False)])
def test_windows_a_microsecond_apart_adjoin(gap, seen):
    spans = np.array([[100.0, 102.0]])
    windows = pd.DataFrame({"begin": [90.0, 101.0 + gap], "end": [101.0, 110.0]})
    assert collective_waits._inside(spans, windows).tolist() == [seen]


@pytest.mark.parametrize(("late", "notes"), [(14.5, 1), (15.5, 2)])
def test_a_host_that_is_last_by_a_twentieth_of_a_step_is_named(late, notes):
    recording = Recording(2, [Call({0: 10.0, 1: late})], backend="nccl")
    found = flight_records.complete(recording.records(), recording.windows(), {}, 2)[1]
    assert len(found) == notes


@pytest.mark.parametrize(("earlier", "used"), [(119.0, True), (121.0, False)])
def test_windows_two_minutes_older_than_all_records_are_of_no_use(monkeypatch, earlier, used):
    taken = []
    monkeypatch.setattr(
        collective_waits, "lateness", lambda found, _: taken.append(len(found)) or 1 / 0
    )
    recording = Recording(2, [Call({0: 10.0, 1: 60.0})])
    records, windows = recording.records(), recording.windows(0, 1)
    first = min(time for window in windows for time in window["time_ns"]) / 1e9
    records["t_start_unix_seconds"] += first + earlier - records["t_start_unix_seconds"].min()
    with pytest.raises(ZeroDivisionError):
        flight_records.complete(records, windows, {}, 2)
    assert (taken[0] > 0) is used
