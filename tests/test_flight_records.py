"""Step records that get sync and compute from sampled windows, and those that must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from flight_launches import BEGIN_NS, Call, Recording
from rankscope_analyzers.profiles.flight_records import WindowError, complete, tables
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose, diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs

LATE = Call({0: 10.0, 1: 60.0})


def known_steps(filled: pd.DataFrame, rank: int = 0) -> list[int]:
    of_rank = filled[(filled["rank"] == rank) & filled["sync_seconds"].notna()]
    return sorted(of_rank["step"].tolist())


def cut(window: dict[str, Any]) -> list[dict[str, Any]]:
    """Cut a window in two, in the middle of a step."""
    at = window["begin_ns"] + 230_000_000
    columns = ("group", "operation", "seq", "time_ns", "duration_us")
    rows = [row for row, time in enumerate(window["time_ns"]) if time < at]
    early = {name: [window[name][row] for row in rows] for name in columns}
    late = {name: window[name][len(rows) :] for name in columns}
    return [{**window, **early, "end_ns": at}, {**window, **late, "begin_ns": at}]


def test_steps_inside_of_windows_get_sync_and_compute_and_say_how() -> None:
    recording = Recording(2, [LATE])
    windows = [*recording.windows(5, 10), *recording.windows(20, 24)]
    filled, (note,) = complete(recording.records(), windows, {}, 2)
    assert known_steps(filled) == [5, 6, 7, 8, 9, 20, 21, 22, 23]
    row = filled[(filled["rank"] == 0) & (filled["step"] == 7)].iloc[0]
    assert row["sync_seconds"] == pytest.approx(0.050, abs=1e-5)
    assert row["compute_seconds"] == pytest.approx(0.050, abs=1e-5)
    assert row["timing_source"] == "host"
    assert filled.loc[filled["sync_seconds"].isna(), "timing_source"].unique() == ["none"]
    assert note.startswith("62 of 80 step records lie outside")


def test_windows_that_adjoin_hold_the_step_between_them() -> None:
    recording = Recording(2, [LATE])
    windows = [window for rank in range(2) for window in cut(recording.window(rank, 5, 10))]
    assert windows[0]["end_ns"] == windows[1]["begin_ns"]
    filled, _ = complete(recording.records(), windows, {}, 2)
    assert known_steps(filled) == [5, 6, 7, 8, 9]


def test_data_time_is_no_compute() -> None:
    recording = Recording(2, [LATE])
    records = recording.records()
    records["data_seconds"] = 0.008
    filled, _ = complete(records, recording.windows(), {}, 2)
    assert filled["compute_seconds"].max() == pytest.approx(0.092, abs=1e-5)


def test_measured_records_are_left_alone() -> None:
    recording = Recording(2, [LATE])
    records = recording.records()
    of_rank = records["rank"] == 1
    records.loc[of_rank, ["sync_seconds", "compute_seconds"]] = (0.5, 0.25)
    filled, _ = complete(records, recording.windows(), {}, 2)
    assert (filled.loc[of_rank, "sync_seconds"] == 0.5).all()
    measured = records.assign(sync_seconds=0.1)
    assert complete(measured, recording.windows(), {}, 2) == (measured, ())


def test_rank_without_windows_leaves_all_unknown_and_is_named() -> None:
    """Its peers' waits for it would look like compute."""
    recording = Recording(3, [Call({0: 10.0, 1: 12.0, 2: 60.0})])
    records = recording.records()
    filled, (note,) = complete(records, recording.windows()[:2], {}, 3)
    assert filled is records
    assert "1 of 3 ranks, the first is rank 2," in note


def test_recorders_without_any_collective_leave_all_unknown() -> None:
    recording = Recording(2, [LATE])
    columns = ("group", "operation", "seq", "time_ns", "duration_us")
    windows = [{**w, "backend": "", **{name: [] for name in columns}} for w in recording.windows()]
    filled, (note,) = complete(recording.records(), windows, {}, 2)
    assert filled["sync_seconds"].isna().all()
    assert note.startswith("no collective is in any Flight Recorder")


def test_step_with_a_collective_that_a_rank_did_not_record_is_unknown() -> None:
    recording = Recording(3, [Call({0: 10.0, 1: 60.0, 2: 15.0})])
    windows = [*recording.windows()[:2], recording.window(2, 0, 12)]
    filled, _ = complete(recording.records(), windows, {}, 3)
    assert known_steps(filled, rank=0) == list(range(12))


def test_step_with_messages_between_two_ranks_is_unknown() -> None:
    messages = Call({0: 5.0}, operation="messages", seq=-1)
    recording = Recording(2, [messages, LATE])
    filled, notes = complete(recording.records(), recording.windows(), {}, 2)
    assert known_steps(filled, rank=0) == []
    assert known_steps(filled, rank=1) == list(range(40))
    assert notes


def test_other_operations_under_one_number_are_not_compared() -> None:
    recording = Recording(2, [LATE])
    windows = recording.windows()
    windows[1]["operations"] = ["all_gather"]
    records = recording.records()
    filled, (note,) = complete(records, windows, {}, 2)
    assert filled is records
    assert "no step lies wholly" in note


def test_numbers_of_a_run_before_a_restart_are_not_those_after_it() -> None:
    recording = Recording(2, [LATE], steps=10)
    windows, later = recording.windows(), recording.windows()
    for window in later:
        window["begin_ns"] += 300 * 10**9
        window["end_ns"] += 300 * 10**9
        window["time_ns"] = [time + 300 * 10**9 for time in window["time_ns"]]
    first = recording.records()
    second = first.assign(t_start_unix_seconds=first["t_start_unix_seconds"] + 300.0)
    records = pd.concat([first, second], ignore_index=True)
    filled, _ = complete(records, [*windows, *later], {}, 2)
    assert filled["sync_seconds"].iloc[: len(first)].isna().all()
    assert filled["sync_seconds"].iloc[len(first) :].max() == pytest.approx(0.05, abs=1e-5)


def test_queued_collectives_without_durations_give_no_compute_but_the_late_host() -> None:
    recording = Recording(2, [LATE], backend="nccl")
    records = recording.records()
    filled, notes = complete(records, recording.windows(), {}, 2)
    assert filled is records
    assert "no durations" in notes[0]
    assert "rank 1's host comes last to collectives, by 50 ms in a step of 100 ms" in notes[1]


def test_hosts_that_arrive_together_are_not_named() -> None:
    recording = Recording(2, [Call({0: 10.0, 1: 11.0})], backend="nccl")
    _, notes = complete(recording.records(), recording.windows(), {}, 2)
    assert len(notes) == 1


def test_steps_before_durations_were_switched_on_stay_unknown() -> None:
    timed = Call({0: 1.0, 1: 1.0}, durations={0: 30.0, 1: 2.0})
    recording = Recording(2, [timed], backend="nccl")
    windows = recording.windows()
    for window in windows:
        window["duration_us"][:3] = [-1, -1, -1]
    filled, _ = complete(recording.records(), windows, {}, 2)
    assert known_steps(filled) == list(range(3, 40))
    assert set(filled["timing_source"]) == {"none", "kernel"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda window: window.pop("seq"),
        lambda window: window.update(group=[9] * len(window["seq"])),
        lambda window: window.update(time_ns=["x"] * len(window["seq"])),
        lambda window: window.update(seq=window["seq"][1:]),
        lambda window: window.update(rank="two"),
        lambda window: window.update(begin_ns=None),
        lambda window: window.update(groups=None),
        lambda window: window.update(begin_ns=10**400),
        lambda window: window.update(time_ns=[10**400] * len(window["seq"])),
        lambda window: window.update(rank=float("inf")),
    ],
)
def test_garbled_window_is_refused_by_name(spoil) -> None:
    window = Recording(2, [LATE]).window(0)
    spoil(window)
    with pytest.raises(WindowError, match="window of collectives"):
        tables([window])


def test_no_windows_change_nothing() -> None:
    records = Recording(2, [LATE]).records()
    assert complete(records, [], {}, 2) == (records, ())


def job(recording: Recording) -> JobRecords:
    windows = tuple(recording.windows(10, 90))
    return JobRecords("a/b", recording.records(), recording.ranks, (), live=True, windows=windows)


def test_slow_rank_is_named_from_windows_of_nodes_whose_clocks_differ() -> None:
    random = np.random.default_rng(3)
    arrivals = {rank: 50.0 + float(random.uniform(0, 1)) for rank in range(4)} | {2: 85.0}
    recording = Recording(4, [Call(arrivals)], steps=100, ahead_ms={0: -30.0, 1: 12.0, 3: 48.0})
    (said,) = diagnose([job(recording)])
    assert said.cause is not None
    assert (said.cause.kind, said.cause.where.ranks) == ("gpu_compute", (2,))
    assert len(said.clock_offsets) == 4
    assert any("sampled windows" in sentence for sentence in said.unobserved)


def test_what_lies_between_sampled_windows_and_behind_the_last_ends_no_fault() -> None:
    recording = Recording(4, [Call({0: 50.0, 1: 50.0, 2: 85.0, 3: 50.0})], steps=400)
    looks = (*recording.windows(20, 120), *recording.windows(220, 320))
    seen = JobRecords("a/b", recording.records(), 4, (), live=True, windows=looks)
    (said,) = diagnose([seen])
    assert said.cause is not None
    assert (said.cause.kind, said.cause.where.ranks) == ("gpu_compute", (2,))
    assert said.cause.since_unix_seconds == pytest.approx(BEGIN_NS / 1e9 + 2.0, abs=0.5)
    assert (said.cause.until_unix_seconds, said.others) == (None, ())


def test_a_fault_that_is_over_by_the_last_window_has_ended() -> None:
    slow = Recording(4, [Call({0: 50.0, 1: 50.0, 2: 85.0, 3: 50.0})], steps=400)
    equal = Recording(4, [Call(dict.fromkeys(range(4), 50.0))], steps=400)
    looks = (*slow.windows(20, 120), *equal.windows(220, 320))
    seen = JobRecords("a/b", slow.records(), 4, (), live=True, windows=looks)
    (said,) = diagnose([seen])
    assert said.cause is not None
    assert said.cause.until_unix_seconds == pytest.approx(BEGIN_NS / 1e9 + 12.0, abs=0.5)


def test_the_watch_says_that_such_a_job_is_not_compared_with_its_own_beginning() -> None:
    recording = Recording(4, [Call({0: 50.0, 1: 50.0, 2: 85.0, 3: 50.0})], steps=400)
    seen = JobRecords(
        "a/b", recording.records(), 4, (), live=True, windows=(*recording.windows(20, 320),)
    )
    followed = FollowedJobs()
    (watched,) = diagnose_each([seen], followed).diagnoses
    assert len(followed) == 0
    assert any("not with its own beginning" in one for one in watched.verdict.unobserved)
    (asked,) = diagnose([seen])
    assert not any("not with its own beginning" in one for one in asked.unobserved)


def test_equal_ranks_with_clocks_that_differ_accuse_nobody() -> None:
    recording = Recording(
        4, [Call(dict.fromkeys(range(4), 50.0))], steps=100, ahead_ms={0: -30.0, 3: 48.0}
    )
    (said,) = diagnose([job(recording)])
    assert said.cause is None


def test_garbled_windows_cost_a_sentence_and_no_verdict() -> None:
    recording = Recording(2, [LATE], steps=100)
    broken = JobRecords(
        "a/b", recording.records(), 2, (), live=True, windows=({"rank": 0, "begin_ns": BEGIN_NS},)
    )
    (said,) = diagnose([broken])
    assert any("window of collectives" in sentence for sentence in said.unobserved)
