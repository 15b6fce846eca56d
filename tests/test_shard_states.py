"""Incidents are handed over where the number of watches changes that share the jobs."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace

import pytest

from faulty_clusters import Cluster, pressure
from rankscope_agent.contract.shards import Shard
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch import shard_states
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.incident_log import IncidentLog
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.shard_states import ShardStore, states_of
from rankscope_analyzers.watch.store import FileStore, UnreachableError
from simulated_jobs import Fault, Job
from test_incident_log import ended, lines_of

SLOW = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))
NAMES = [f"team/job-{number}" for number in range(24)]
MOST = 4


@pytest.fixture(scope="module")
def report():
    return Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, SLOW, [pressure({})]).report()


class ShardWatch:
    """One of several watches, on a node of its own; states are where all reach them."""

    def __init__(self, folder, shard, generation, store=None):
        self.shard = shard
        own = folder / f"node-{generation}-{shard.index}"
        own.mkdir()
        self.log = own / "log"
        self.exporter, self.followed, self.said = FindingsExporter(), FollowedJobs(), []
        self.announcer = Announcer(self.said.append, IncidentLog(self.log))
        sharded = ShardStore(shard, FileStore(folder / f"state-{shard.index}"), self.others(folder))
        told = {"announced": self.announcer.log}
        self.memory = Memory(store or sharded, self.said.append, told)

    def others(self, folder):
        names = {index: f"state-{index}" for index in range(MOST) if index != self.shard.index}
        stores = [(0, FileStore(folder / "state"))]
        stores += [(index, FileStore(folder / name)) for index, name in names.items()]
        return lambda: states_of(stores)

    def look(self, reports, now):
        own = [one for one in reports if self.shard.has(one.job_id)]
        self.memory.begin(self.exporter, self.followed)
        self.exporter.update(own, now, 0, ())
        self.announcer.tell(self.exporter.events, own, now)
        self.memory.end(self.exporter, self.followed, changed=True)
        return {event.job_id: event.change for event in self.exporter.events}

    def lines(self):
        return lines_of(self.log) if self.log.exists() else []


def started(folder, total, generation):
    return [ShardWatch(folder, Shard(index, total), generation) for index in range(total)]


def all_look(watches, reports, now):
    """Return what changed, by job, as all watches say."""
    return {job: change for each in watches for job, change in each.look(reports, now).items()}


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 4), (4, 1), (2, 2)])
@pytest.mark.parametrize("order", [1, -1])
def test_a_change_of_the_number_of_watches_loses_and_doubles_no_incident(
    report, tmp_path, before, after, order
):
    reports = [replace(report, job_id=name) for name in NAMES]
    first = started(tmp_path, before, 1)
    assert all_look(first, reports, 1000.0) == dict.fromkeys(NAMES, "opened")
    second = started(tmp_path, after, 2)
    assert all_look(second[::order], reports, 1030.0) == {}
    assert all_look(second[::order], reports, 1060.0) == {}
    over = [ended(one) for one in reports]
    assert all_look(second[::order], over, 1090.0) == dict.fromkeys(NAMES, "over")
    opened = {line["job_id"]: line["incident"] for each in first for line in each.lines()}
    told = [line for each in second for line in each.lines()]
    assert {line["change"] for line in told} == {"closed"}
    assert {line["job_id"]: line["incident"] for line in told} == opened
    assert len(told) == len(NAMES)


def test_sums_of_a_job_go_on_with_the_watch_that_follows_it_now(report, tmp_path):
    reports = [replace(report, job_id=name) for name in NAMES]
    first = started(tmp_path, 2, 1)
    for now in (1000.0, 1030.0):
        all_look(first, reports, now)
    second = started(tmp_path, 3, 2)
    all_look(second, reports, 1060.0)
    text = [each.exporter.text() for each in second]
    for name in NAMES:
        sums = f'rankscope_job_observed_gpu_seconds_total{{job_id="{name}"}} 480.0'
        assert [sums in page for page in text] == [each.shard.has(name) for each in second]


def test_two_changes_one_after_the_other_take_up_what_is_newest(report, tmp_path):
    reports = [replace(report, job_id=name) for name in NAMES]
    all_look(started(tmp_path, 2, 1), reports, 1000.0)
    second = started(tmp_path, 3, 2)
    all_look(second, reports, 1030.0)
    all_look(second, [ended(one) for one in reports], 1060.0)
    third = started(tmp_path, 2, 3)
    assert all_look(third, [ended(one) for one in reports], 1090.0) == {}
    assert all_look(third, reports, 1120.0) == dict.fromkeys(NAMES, "back")


def sums_of(watches):
    """Return the GPU time of each job that watches export."""
    found = [OBSERVED.findall(each.exporter.text()) for each in watches]
    return {job: float(value) for pairs in found for job, value in pairs}


OBSERVED = re.compile(r'rankscope_job_observed_gpu_seconds_total\{job_id="([^"]+)"\} (\S+)')


@pytest.mark.parametrize("totals", [(4, 2, 4), (4, 2, 3), (3, 1, 3), (4, 3, 2, 4)])
@pytest.mark.parametrize("logs_stay", [True, False])
@pytest.mark.parametrize("order", [1, -1])
def test_the_old_states_of_watches_that_are_started_again_do_not_come_back(
    report, tmp_path, totals, logs_stay, order
):
    reports = [replace(report, job_id=name) for name in NAMES]
    over = [ended(one) for one in reports]
    times = itertools.count(1000.0, 30.0)
    watches = first = started(tmp_path, totals[0], 1)
    assert all_look(first, reports, next(times)) == dict.fromkeys(NAMES, "opened")
    for generation, total in enumerate(totals[1:-1], start=2):
        watches = started(tmp_path, total, generation)
        for _ in range(2):
            all_look(watches, reports, next(times))
    assert all_look(watches, over, next(times)) == dict.fromkeys(NAMES, "over")
    before = sums_of(watches)
    for generation in (90, 91):  # the second time they are only restarted
        after = started(tmp_path, totals[-1], generation)
        for old, new in zip(first, after, strict=False):
            if logs_stay:
                shutil.copy(old.log, new.log)
        for _ in range(2):
            assert all_look(after[::order], over, next(times)) == {}
        now = sums_of(after)
        assert now.keys() == before.keys() == set(NAMES)
        assert all(now[name] >= before[name] for name in NAMES)
        written = [line for each in after for line in each.lines()]
        assert written == [line for one in first[: len(after)] for line in one.lines() if logs_stay]


def test_a_watch_that_shared_with_none_hands_over_to_shards(report, tmp_path):
    reports = [replace(report, job_id=name) for name in NAMES]
    alone = ShardWatch(tmp_path, Shard(0, 1), 1, FileStore(tmp_path / "state"))
    assert alone.look(reports, 1000.0) == dict.fromkeys(NAMES, "opened")
    assert all_look(started(tmp_path, 2, 2), reports, 1030.0) == {}


def test_what_is_kept_for_others_goes_after_an_hour(report, tmp_path, monkeypatch):
    reports = [replace(report, job_id=name) for name in NAMES]
    all_look(started(tmp_path, 1, 1), reports, 1000.0)
    watch = ShardWatch(tmp_path, Shard(0, 2), 2)
    watch.look(reports, 1030.0)

    def parked():
        return [one for one in FileStore(tmp_path / "state-0").read().parts if one.kind == "parked"]

    assert {part.name for part in parked()} == {name for name in NAMES if not watch.shard.has(name)}
    now = shard_states.time.monotonic()
    monkeypatch.setattr(shard_states.time, "monotonic", lambda: now + 3599.0)
    watch.look(reports, 1060.0)
    assert parked()
    monkeypatch.setattr(shard_states.time, "monotonic", lambda: now + 3601.0)
    watch.look(reports, 1090.0)
    assert parked() == []


def test_a_state_that_cannot_be_read_now_is_waited_for(report, tmp_path):
    class Down:
        def read(self):
            raise UnreachableError("nobody there")

    store = ShardStore(
        Shard(0, 2), FileStore(tmp_path / "state-0"), lambda: states_of([(1, Down())])
    )
    with pytest.raises(UnreachableError):
        store.read()


def test_a_damaged_state_of_another_costs_this_one_nothing(report, tmp_path):
    reports = [replace(report, job_id=name) for name in NAMES]
    all_look(started(tmp_path, 1, 1), reports, 1000.0)
    (tmp_path / "state-1").write_bytes(b"\0" * 100)
    assert all_look(started(tmp_path, 2, 2)[:1], reports, 1030.0) == {}


@pytest.mark.parametrize(("total", "taken"), [(64, True), (65, False)])
def test_jobs_are_shared_by_64_watches_at_most(total, taken):
    if taken:
        assert str(Shard(0, total)) == "0/64"
        return
    with pytest.raises(ValueError, match="shard of up to 64"):
        Shard(0, total)
