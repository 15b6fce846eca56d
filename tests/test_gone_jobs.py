"""Incidents of deleted jobs are closed, and those of jobs that merely cannot be seen are not."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankscope_agent.contract.shards import Shard
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.commands.job_source import JobSource
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.agent_pages import AgentPoll
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.steps.job_records import JobRecords, SourceError
from rankscope_analyzers.watch.absent_jobs import AbsentJobs
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.completions import Completions, restored
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.incident_log import IncidentLog
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FileStore
from rankscope_analyzers.watch.webhook import alertmanager_body
from suite_jobs import fault, made
from test_incident_history import reported
from test_incident_log import lines_of
from test_watch_sums import Api

MINUTE, DAY = 60.0, 86400.0


@pytest.fixture(scope="module")
def slow():
    return reported(last=220)


@pytest.fixture(scope="module")
def nodes(slow):
    found = frozenset(location.node for location in slow.locations.values())
    assert len(found) > 1
    return found


class Process:
    """One process of a watch: its state is in a file, and its incident log beside it."""

    def __init__(self, folder, now, shard=None):
        self.now = now
        self.exported = FindingsExporter(shard=shard) if shard else FindingsExporter()
        self.log = folder / "log"
        self.announcer = Announcer(lambda _: None, IncidentLog(self.log))
        keepers = {"announced": self.announcer.log}
        self.memory = Memory(FileStore(folder / "state"), print, keepers)

    def look(self, reports, answered, seconds=30.0):
        self.now += seconds
        self.memory.begin(self.exported, None)
        self.exported.update(reports, self.now, 0, (), answered)
        events = self.exported.events
        self.announcer.tell(events, reports, self.now, self.exported.is_gone)
        self.memory.end(self.exported, None, changed=bool(events))

    def absent(self, answered, seconds, step=30.0):
        for _ in range(round(seconds / step)):
            self.look((), answered, step)

    def changes(self):
        return [line["change"] for line in lines_of(self.log)] if self.log.exists() else []

    def known(self):
        found = {}
        self.exported.with_watch(lambda series: found.update(series.state.history.kept()))
        return found


def test_a_job_that_is_deleted_is_gone_after_half_an_hour(slow, nodes, tmp_path):
    watch = Process(tmp_path, 1e9)
    for _ in range(3):
        watch.look([slow], nodes)
    watch.absent(nodes, 1770.0)
    assert watch.changes() == ["opened"]
    watch.absent(nodes, 30.0)
    assert watch.changes() == ["opened", "closed"]
    assert watch.known() == {}
    opened, closed = lines_of(watch.log)
    assert closed["incident"] == opened["incident"]
    assert (closed["number"], closed["reason"]) == (2, "job_gone")
    assert closed["summary"].startswith("closed because the job is gone, not because the fault")
    assert slow.incidents[0].summary in closed["summary"]
    body = alertmanager_body(closed, "x")
    assert (body["status"], body["commonAnnotations"]["reason"]) == ("resolved", "job_gone")
    watch.absent(nodes, 7200.0, 300.0)
    assert watch.changes() == ["opened", "closed"]
    watch.look([slow], nodes)
    assert watch.changes() == ["opened", "closed", "opened"], "a job of this name is another one"


def test_an_incident_that_ends_says_that_it_is_over(slow, nodes, tmp_path):
    watch = Process(tmp_path, 1e9)
    watch.look([slow], nodes)
    watch.look([replace(slow, incidents=())], nodes)
    opened, closed = lines_of(watch.log)
    assert "reason" not in opened
    assert closed["reason"] == "over"
    watch.absent(nodes, 7200.0)
    assert watch.changes() == ["opened", "closed"]
    assert list(watch.known()) == [slow.job_id], "for a day, in case that it comes back"


def test_agents_of_a_job_that_do_not_answer_close_nothing_for_a_day(slow, nodes, tmp_path):
    """Those of other nodes do; one of the job's own is not enough."""
    watch, others = Process(tmp_path, 1e9), {"other", min(nodes)}
    watch.look([slow], nodes)
    watch.absent(others, 6 * 3600.0, 300.0)
    watch.look([slow], nodes)
    assert watch.changes() == ["opened"]
    watch.absent(others, DAY - 300.0, 300.0)
    assert watch.changes() == ["opened"]
    watch.absent(others, 300.0, 300.0)
    assert watch.changes() == ["opened", "closed"]


def test_a_job_that_is_seen_again_is_not_gone(slow, nodes, tmp_path):
    """Its pods were evicted and waited for other nodes, more than once."""
    watch = Process(tmp_path, 1e9)
    for _ in range(4):
        watch.look([slow], nodes)
        watch.absent(nodes, 1740.0)
    watch.look([replace(slow, verdict=None, incidents=(), missing=("its pods wait",))], nodes)
    watch.absent(nodes, 1740.0)
    assert watch.changes() == ["opened"]


def test_a_pause_of_all_agents_closes_nothing(slow, nodes, tmp_path):
    watch = Process(tmp_path, 1e9)
    watch.look([slow], nodes)
    for _ in range(1200):
        watch.now += 30.0
        watch.exported.fail()
    watch.look((), nodes)  # the first look after it, in which the job is not there yet
    watch.look([slow], nodes)
    assert watch.changes() == ["opened"]


def test_a_restart_closes_nothing_and_forgets_no_incident(slow, nodes, tmp_path):
    first = Process(tmp_path, 1e9)
    first.look([slow], nodes)
    first.absent(nodes, 1740.0)
    for hours in range(1, 5):
        watch = Process(tmp_path, 1e9 + hours * 3600.0)
        watch.absent(nodes, 1740.0)
    assert watch.changes() == ["opened"]
    watch.look([slow], nodes)
    assert watch.changes() == ["opened"]
    last = Process(tmp_path, 2e9)
    last.absent(nodes, DAY, 300.0)
    assert last.changes() == ["opened"]
    last.absent(nodes, 300.0, 300.0)
    assert last.changes() == ["opened", "closed"]


@pytest.mark.parametrize("state", ["as it was", "lost"])
def test_an_incident_that_only_the_log_has_is_closed(slow, nodes, tmp_path, state):
    """Logs of earlier versions have those of all jobs that were deleted."""
    Process(tmp_path, 1e9).look([slow], nodes)
    if state == "lost":
        (tmp_path / "state").unlink()
    watch = Process(tmp_path, 1e9 + 7200.0)
    watch.absent(nodes, DAY, 300.0)
    assert watch.changes() == ["opened"]
    watch.absent(nodes, 300.0, 300.0)
    opened, closed = lines_of(watch.log)
    assert (closed["incident"], closed["reason"]) == (opened["incident"], "job_gone")


def test_an_incident_of_a_job_that_another_watch_follows_now_stays_open(slow, nodes, tmp_path):
    Process(tmp_path, 1e9).look([slow], nodes)
    (tmp_path / "state").unlink()
    index = next(n for n in range(2) if not Shard(n, 2).has(slow.job_id))
    watch = Process(tmp_path, 1e9 + 7200.0, Shard(index, 2))
    watch.absent(nodes, 2 * DAY, 300.0)
    assert watch.changes() == ["opened"]


def test_an_older_state_that_is_read_again_ends_no_job_that_another_watch_saw(
    slow, nodes, tmp_path
):
    """This watch has run for days, and never saw it."""
    watch = Process(tmp_path, 1e9)
    watch.absent(nodes, 2 * DAY, 300.0)
    Process(tmp_path, watch.now).look([slow], nodes)
    watch.memory.forget()
    watch.announcer.forget()
    watch.absent(nodes, DAY - 300.0, 300.0)
    assert watch.changes() == ["opened"]


def test_present_jobs_are_remembered_however_many_there_are(slow, nodes):
    absent = AbsentJobs()
    many = [replace(slow, job_id=f"ns/job-{number}") for number in range(4100)]
    for look in range(400):
        absent.look(many if look in {0, 399} else many[:1], (), 1e9 + 300.0 * look)
    assert not any(absent.is_gone(one.job_id) for one in many)
    absent.look([replace(slow, job_id="ns/other")], (), 2e9)
    assert len(absent._jobs) == 4096


class Clock:
    """Stands in for the module, at a time of its own."""

    def __init__(self):
        self.now = 1.76e9 + 1000.0
        self.monotonic, self.sleep, self.thread_time = time.monotonic, None, time.thread_time

    def time(self):
        return self.now


def test_evaluations_of_a_watch_close_the_incidents_of_a_job_that_is_deleted(
    tmp_path, monkeypatch, nodes
):
    clock, log, said = Clock(), tmp_path / "log", []
    monkeypatch.setattr(watch_command, "time", clock)
    simulated = made(fault("gpu_compute", "gpu", 1.5, first=60, last=220), tensor=1, pipeline=1)
    job = JobRecords("ns/job", simulated.records, None, (), live=True)
    agents = {node: Agent(f"http://{node}") for node in nodes}
    shown = SimpleNamespace(jobs=(job,), down=False)

    def read():
        if shown.down:
            raise SourceError("no agent answers")
        return Gathered(shown.jobs, JobEvidence(), AgentPoll((), agents, (), 0.0))

    source = JobSource(read, announcer=Announcer(said.append, IncidentLog(log)))
    exporter = FindingsExporter()

    def looks(count):
        for _ in range(count):
            watch_command.evaluate(source, exporter, ErrorLog(said.append))
            clock.now += 30.0
        return [line["change"] for line in lines_of(log)]

    assert looks(2) == ["opened"]
    shown.down = True
    assert looks(100) == ["opened"]
    shown.down, shown.jobs = False, ()
    assert looks(50) == ["opened"]
    assert looks(10) == ["opened", "closed"]
    assert lines_of(log)[-1]["reason"] == "job_gone"
    assert [text for text in said if "defect" in text] == []


class Ends:
    """The completions of a cluster, as a keeper."""

    def __init__(self, count):
        ends = {f"0f9d2c1e-7a51-4b7e-9a35-{number:012d}": 1.0 for number in range(count)}
        totals = {("team", "default", "succeeded", ""): count}
        self.sums = Completions(began=1.0, ends=ends, totals=totals)

    def kept(self):
        return self.sums.kept()

    def restore(self, kept):
        self.sums = Completions() if kept is None else restored(kept)


def test_open_incidents_of_any_number_of_jobs_cost_no_completions(slow):
    """2,500 ends take a quarter of the state, 3,000 incidents more than all of it."""
    api, said, exported = Api(), [], FindingsExporter()
    memory = Memory(ConfigMapStore(api, "s", "n"), said.append, {"cluster_jobs": Ends(2500)})
    memory.begin(exported, None)
    memory._keepers["cluster_jobs"].sums = Ends(2500).sums
    many = [replace(slow, job_id=f"team/train-run-{number:05d}-x7k2p") for number in range(3000)]
    exported.update(many, 1000.0, 0, ())
    memory.end(exported, None, changed=True)
    assert "too large to be saved" in said[-1]
    following = Ends(0)
    anew = Memory(ConfigMapStore(api, "s", "n"), said.append, {"cluster_jobs": following})
    anew.begin(FindingsExporter(), None)
    assert following.sums.totals == {("team", "default", "succeeded", ""): 2500}
    kinds = [json.loads(line).get("part") for line in api.body["data"]["state"].splitlines()]
    assert kinds.count("incidents") > 500
