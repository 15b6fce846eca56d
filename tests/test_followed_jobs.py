"""What the watch knows of a job from look to look."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed, followed_jobs
from rankscope_analyzers.stragglers.diagnosis import diagnose_each, diagnosis
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from suite_jobs import fault, made

NEW_JOB_SECONDS = 1800.0
ABSENT_POLLS = 60
MAXIMUM_JOBS = 4096
START = "t_start_unix_seconds"
JOB = Layout(32, 1, 1, 0, wall=True, by_groups=True)
SLOW = fault("gpu_compute", "gpu", 1.5, first=60, last=150)
SLOW_FOR_EVER = fault("gpu_compute", "gpu", 1.5, first=60, last=220)
SLOW_ALL = fault("global_slowdown", "compute", 1.4, first=80, last=220)


def running(*faults, **changes):
    """Return a job's records in order of their ends, and when each ended."""
    job = made(*faults, **({"tensor": 1, "pipeline": 1} | changes))
    parts = job.records[["data_seconds", "compute_seconds", "sync_seconds"]].sum(axis=1)
    records = job.records.assign(
        other_seconds=(job.records["step_seconds"] - parts).clip(lower=0),
        timing_source="kernel", cpu_wait_seconds=0.0, attempt=0,
    )  # fmt: skip
    ended = records[START] + records["step_seconds"]
    records = records.assign(ended=ended).sort_values("ended", kind="stable")
    return records.reset_index(drop=True)


def looks(records, every=30.0, window=1800.0):
    """Yield what a look shows each time, of records in order of their ends."""
    ended, began = records["ended"].to_numpy(), records[START].to_numpy()
    records = records.drop(columns="ended")
    for now in np.arange(ended[0] + every, ended[-1] + every, every):
        count = int(np.searchsorted(ended, now, side="right"))
        there = records.iloc[np.flatnonzero(began[:count] >= now - window)]
        yield there.reset_index(drop=True)


def judged(shown, known=None):
    """Return what the last of some looks says."""
    known, found = FollowedJobs() if known is None else known, None
    for records in shown:
        known.start_poll()
        found = known.update("job", records, JOB)
    return found


def whole(records):
    return feed.detect_latest(FrameTable(records.drop(columns="ended")), JOB)


STREAMS = {
    "healthy": {},
    "slow": {"faults": (SLOW,)},
    "slow for ever": {"faults": (SLOW_FOR_EVER,)},
    "restarted": {"faults": (SLOW_FOR_EVER,), "restart": 130},
    "shrunk": {"faults": (SLOW,), "restart": 130, "shrinks": True},
    "by wall": {"faults": (SLOW, SLOW_ALL), "timing": "wall"},
}


@cache
def stream(name):
    """Return the records of a job, and the incidents in all of them."""
    changes = dict(STREAMS[name])
    records = running(*changes.pop("faults", ()), **changes)
    return records, whole(records).incidents


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("every", [10.0, 90.0])
def test_looks_find_what_is_found_in_all_records_at_once(name, every):
    records, incidents = stream(name)
    said = judged(looks(records, every))
    assert said.incidents == incidents
    assert bool(said.incidents) == (name != "healthy")


def test_each_look_takes_what_is_new_and_no_more(monkeypatch):
    records = running(SLOW)
    tables = []
    monkeypatch.setattr(
        followed_jobs, "FrameTable", lambda rows: tables.append(len(rows)) or FrameTable(rows)
    )
    shown = list(looks(records))
    judged(shown)
    assert sum(tables) < 1.5 * len(records)
    assert sum(map(len, shown)) > 5 * len(records)


def test_a_slow_job_is_compared_with_its_own_start_that_is_out_of_sight():
    records = running(SLOW_ALL)
    (last,) = list(looks(records, window=120.0))[-1:]
    said = judged(looks(records, window=120.0))
    assert not feed.detect_latest(FrameTable(last), JOB).incidents
    (slow,) = said.incidents
    assert (slow.kind, slow.until) == ("global_slowdown", None)
    assert slow.since < float(last[START].min())


def in_sight(records, seconds):
    """Return the job's records of its last seconds, and its first 64 steps."""
    shown = records.drop(columns="ended")
    late = shown[START] >= records["ended"].max() - seconds
    return shown[late].reset_index(drop=True), shown[shown["step"] < 64].reset_index(drop=True)


@pytest.mark.parametrize("restart", [0, 130])
def test_one_who_asks_for_the_last_minutes_compares_them_with_the_start_all_the_same(restart):
    shown, start = in_sight(running(SLOW_ALL, restart=restart), 180.0)
    alone = JobRecords("job", shown, None, (), live=True)
    assert diagnosis(alone).verdict.cause is None
    cause = diagnosis(replace(alone, start=start)).verdict.cause
    assert (cause.kind, cause.until_unix_seconds) == ("global_slowdown", None)
    assert cause.since_unix_seconds == pytest.approx(float(shown[START].min()), abs=60.0)


def test_a_watch_that_begins_late_compares_with_the_start_that_agents_show_it():
    records = running(SLOW_ALL)
    _, start = in_sight(records, 180.0)
    followed, told = FollowedJobs(), []
    for number, shown in enumerate(list(looks(records, window=120.0))[-5:]):
        job = JobRecords("job", shown, None, (), live=True, start=None if number else start)
        (by_watch,) = diagnose_each([job], followed).diagnoses
        told.append(by_watch.verdict.cause and by_watch.verdict.cause.kind)
    assert told[-1] == "global_slowdown"


def test_a_start_that_makes_no_sense_costs_nothing():
    shown, start = in_sight(running(SLOW_FOR_EVER), 600.0)
    job = JobRecords("job", shown, None, (), live=True, start=start.drop(columns="step"))
    assert diagnosis(job).verdict.cause.where.ranks == (13,)
    job = replace(job, start=start.assign(step_seconds=-1.0))
    assert diagnosis(job).verdict.cause.where.ranks == (13,)


def test_what_was_over_before_the_window_is_told_no_more():
    records = running(SLOW)
    assert judged(looks(records)).incidents
    assert not judged(looks(records, window=60.0)).incidents


def test_an_agent_that_does_not_answer_for_two_looks_costs_nothing():
    records = running(SLOW_FOR_EVER)
    shown = list(looks(records))
    for number in (6, 7, 11):
        there = shown[number]
        shown[number] = there[there["node"] != "node-00001"].reset_index(drop=True)
    said = judged(shown)
    assert said.incidents == whole(records).incidents
    assert said.dropped == whole(records).dropped


def test_ranks_that_are_silent_for_long_keep_nobody_waiting_and_their_late_records_are_said():
    records = running(SLOW_FOR_EVER)
    shown = [
        there[(there["node"] != "node-00002") | (number > 12)].reset_index(drop=True)
        for number, there in enumerate(looks(records))
    ]
    known = FollowedJobs()
    (slow,) = judged(shown[:13], known).incidents
    assert (slow.ranks[0], slow.until) == (13, None)
    (late,) = judged(shown[13:14], known).dropped
    assert (late.reason, late.count > 100) == ("late", True)
    (again,) = judged(shown[14:15], known).dropped
    assert again.count == late.count
    assert judged(shown[15:], known).incidents[0].since == slow.since


def test_a_clock_that_is_years_ahead_costs_no_other_rank_its_verdict():
    records = running(SLOW_FOR_EVER)
    records.loc[records["rank"] == 3, START] += 1e9
    (slow, *_) = judged(looks(records)).incidents
    assert (slow.kind, slow.ranks[0]) == ("gpu_compute", 13)


def test_another_job_of_the_same_name_is_compared_with_its_own_start_alone():
    first = running()
    second = running(compute=3.0)
    later = first["ended"].max() + NEW_JOB_SECONDS + 60.0 - second[START].min()
    second = second.assign(**{name: second[name] + later for name in (START, "ended")})
    known = FollowedJobs()
    judged(looks(first), known)
    assert judged(looks(second), known).incidents == ()
    soon = second.assign(**{name: second[name] - 900.0 for name in (START, "ended")})
    known = FollowedJobs()
    judged(looks(first), known)
    assert judged(looks(soon), known).incidents != ()


def test_records_without_a_start_are_said_and_cost_nothing():
    records = running(SLOW)
    shown = [
        there.assign(**{START: there[START].mask(there.index == 3)}) for there in looks(records)
    ]
    said = judged(shown)
    assert said.incidents == whole(records).incidents
    assert "incomplete" in {one.reason for one in said.dropped}


def test_what_makes_no_sense_costs_a_job_its_verdict_until_it_does():
    known = FollowedJobs()
    shown = list(looks(running(SLOW_FOR_EVER)))
    with pytest.raises(RecordError):
        known.update("job", shown[3].drop(columns="step_seconds"), JOB)
    assert judged(shown, known).incidents


def test_jobs_that_are_gone_are_forgotten():
    known = FollowedJobs()
    (there,) = list(looks(running(steps=12)))[-1:]
    for number in range(3):
        known.start_poll()
        known.update(f"job-{number}", there, JOB)
    assert len(known) == 3
    for _ in range(ABSENT_POLLS - 1):
        known.start_poll()
        known.update("job-2", there, JOB)
    assert len(known) == 2
    known.start_poll()
    assert len(known) == 1
    assert MAXIMUM_JOBS >= 1000


def test_the_watch_says_the_same_of_a_job_as_one_who_asks_for_all_of_it():
    records = running(SLOW_FOR_EVER)
    followed = FollowedJobs()
    for shown in looks(records):
        job = JobRecords("job", shown, None, (), live=True)
        (by_watch,) = diagnose_each([job], followed).diagnoses
    once = diagnosis(JobRecords("job", shown, None, (), live=True))
    assert by_watch.verdict.cause == once.verdict.cause
    assert by_watch.verdict.cause.where.ranks == (13,)
