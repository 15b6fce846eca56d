"""Sums of a watch that reads an older state again, stands by, or has more jobs than it keeps."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from faulty_clusters import JOB, Cluster, pressure
from hanging_jobs import reported, training_page
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.kubernetes_api import Answer
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.series import WatchSeries
from simulated_jobs import Fault, Job
from test_watch_streaming import SLOW, Watch, fleet  # noqa: F401 - a fixture

STALLED = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))
LOST, OBSERVED = "rankscope_job_lost_gpu_seconds_total", "rankscope_job_observed_gpu_seconds_total"


@pytest.fixture(scope="module")
def report() -> JobReport:
    return Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, STALLED, [pressure({})]).report()


class Api:
    """An API server with one ConfigMap, which somebody else may write."""

    def __init__(self):
        self.body, self.refuses = {"metadata": {"resourceVersion": "1"}}, 0

    def get(self, path, query, seconds):
        return Answer(200, json.loads(json.dumps(self.body)))

    def put(self, path, body, seconds):
        if self.refuses:
            self.refuses -= 1
            return Answer(409, {"message": "the object has been modified"})
        self.body = json.loads(json.dumps(body))
        return Answer(200, self.body)


class Process:
    """One process of a watch, whose state is in a ConfigMap."""

    def __init__(self, api):
        self.exported, self.said = FindingsExporter(), []
        self.memory = Memory(ConfigMapStore(api, "state", "rankscope"), self.said.append)
        self.now = 1000.0

    def look(self, *reports, changed=False):
        self.memory.begin(self.exported, None)
        self.exported.update(reports, self.now, 0, ())
        self.now += 30.0
        self.memory.end(self.exported, None, changed=changed)
        return counters(self.exported)

    def stand_by(self):
        self.exported.stand_by()
        self.memory.forget()


def counters(exported):
    """Return the series of counters, with their labels."""
    lines = (line.rpartition(" ") for line in exported.text().splitlines() if line[0] != "#")
    return {name: float(value) for name, _, value in lines if "_total" in name.partition("{")[0]}


def fallen(before, after):
    return {name: (value, after.get(name)) for name, value in before.items() if after[name] < value}


def test_a_state_older_than_what_was_exported_lowers_no_counter_and_ends_no_evaluation(report):
    """A job began after the last save, then `kubectl apply` touched the ConfigMap."""
    api, new = Api(), replace(report, job_id="ns/new")
    watch = Process(api)
    for _ in range(3):
        watch.look(report)
    watch.look(report, changed=True)
    for _ in range(8):
        watch.look(report, new)
    api.refuses = 1
    before = watch.look(report, new, changed=True)
    assert "was written by another watch" in watch.said[-1]
    after = watch.look(report, new)
    assert fallen(before, after) == {}
    observed = f'{OBSERVED}{{job_id="ns/new"}}'
    assert after[observed] == 9 * 16 * 30, "the job that the state lacks goes on, and is saved"


@pytest.mark.parametrize("looks_of_another", [0, 1, 20])
def test_a_watch_that_leads_again_goes_on_from_the_larger_sums(report, looks_of_another):
    """The API server was away for a minute: the lease ran out, and nothing more was saved."""
    api = Api()
    first, second = Process(api), Process(api)
    first.look(report, changed=True)
    first.exported.with_watch(lambda series: series.note_failures(1))
    for _ in range(6):
        first.look(report)
    before = first.look(report, changed=True)
    assert before[f'{OBSERVED}{{job_id="{JOB}"}}'] == 16 * 210
    first.stand_by()
    first.exported.stand_by()  # at each check of the lease
    for _ in range(looks_of_another):
        other = second.look(report, changed=True)
    again = first.look(report)
    assert fallen(before, again) == {}
    assert again["rankscope_watch_failed_evaluations_total"] == 1
    if looks_of_another == 20:
        assert again[f'{OBSERVED}{{job_id="{JOB}"}}'] == other[f'{OBSERVED}{{job_id="{JOB}"}}']
        assert 'finding_active{job_id="team/llm"' in first.exported.text()


@pytest.mark.parametrize("saved_after", [1, 4, 7])
def test_a_watch_that_is_killed_leaves_nothing_exported_that_the_next_one_takes_back(
    report, saved_after
):
    """Prometheus would count all of a job's lost time once more."""
    api = Api()
    killed = Process(api)
    for number in range(8):
        before = killed.look(report, changed=number == saved_after)
        killed.exported.with_watch(lambda series: series.note_failures(1))
    assert before[f'{OBSERVED}{{job_id="{JOB}"}}'] == 16 * 30 * saved_after
    following = Process(api)
    following.now = killed.now
    after = following.look(report)
    assert {name for name in fallen(before, after) if "_job_" in name} == set()
    assert after["rankscope_watch_failed_evaluations_total"] == 0, "counted by process"


def test_while_the_saved_state_cannot_be_read_no_sum_is_exported(report, monkeypatch):
    """From 0 they would jump to what is saved once it can be read."""
    api = Api()
    first = Process(api)
    for _ in range(3):
        first.look(report, changed=True)
    following = Process(api)
    following.now = first.now
    with monkeypatch.context() as away:
        away.setattr(api, "get", lambda *_: Answer(503, {"message": "away"}))
        blind = [following.look(report) for _ in range(3)]
    assert not [name for page in blind for name in page if name.startswith((LOST, OBSERVED))]
    assert following.look(report)[f'{OBSERVED}{{job_id="{JOB}"}}'] >= 16 * 60


def test_of_more_than_4096_judged_jobs_only_the_sums_of_the_last_ones_are_lost(report):
    watch = WatchSeries()
    many = [replace(report, job_id=f"ns/job-{number}") for number in range(4098)]
    for now in (1000.0, 1030.0, 1060.0):
        watch.update(many, now)
        changes = Counter(event.change for event in watch.events)
        assert changes["opened"] == (4098 if now == 1000.0 else 2)
    kept = watch.state.observed
    assert {*kept} == {report.job_id for report in many[:4096]}
    assert {*kept.values()} == {16 * 60.0}
    watch.update(many[100:], 1090.0)
    watch.update(many[100:], 1120.0)
    assert watch.state.observed["ns/job-100"] == 16 * 120.0, "those that ended are dropped first"
    assert {*watch.state.observed} - {one.job_id for one in many[100:]} == {
        f"ns/job-{number}" for number in range(98)
    }


def test_a_hang_of_a_job_without_sums_costs_no_other_job(report):
    """4,097 jobs, of which the one that is too many hangs."""
    hung = reported(training_page(75.0))
    assert hung.incidents[0].stands
    many = [replace(report, job_id=f"ns/job-{number}") for number in range(4097)]
    watch = WatchSeries()
    watch.update(many, 1000.0)
    watch.update([*many[:-1], replace(hung, job_id="ns/job-4096")], 1030.0)
    assert watch.state.observed["ns/job-0"] == 16 * 30.0


def settled(watched, clocks, steps):
    """Follow steps one look after the other; return the counters after each."""
    for clocks.steps in steps:
        watched.look()
        yield counters(watched.exporter)


def test_the_streaming_watch_survives_a_state_that_lacks_a_job(fleet, tmp_path):  # noqa: F811
    """Between two evaluations, where nothing else would catch it."""
    clock, urls = fleet(SLOW)
    late, late_urls = fleet(SLOW, "late/job")
    watched, api = Watch([*urls, *late_urls], tmp_path), Api()
    watched.source.memory._store = ConfigMapStore(api, "state", "rankscope")
    clock.steps = 90
    watched.evaluate()
    before = [*settled(watched, clock, (100, 110, 120, 130))]  # it opens, which is saved
    assert "team/job" in json.dumps(api.body)
    late.steps = 90
    watched.evaluate()
    late.steps = 95
    watched.look()
    assert "late/job" not in json.dumps(api.body)
    api.refuses = 1
    before += settled(watched, clock, (140, 150, 160, 170, 180, 190))  # its end is refused
    assert api.refuses == 0
    before += settled(watched, late, range(100, 200, 10))
    for one, following in pairwise(before):
        assert fallen(one, following) == {}
    assert [(line["job_id"], line["change"]) for line in watched.lines()] == [
        (job, change) for job in ("team/job", "late/job") for change in ("opened", "closed")
    ]
    assert [text for text in watched.said if "defect" in text] == []
    watched.cycle.stand_by()


def test_an_evaluation_of_some_jobs_that_raises_is_reported_and_the_next_one_goes_on(
    fleet,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    clock, urls = fleet(SLOW)
    watched = Watch(urls, tmp_path)
    clock.steps = 90
    watched.evaluate()

    def defect(*_):
        raise KeyError("team/other")

    with monkeypatch.context() as broken:
        broken.setattr(watched.exporter, "update", defect)
        for clock.steps in (100, 110, 120, 130):
            watched.look()
    assert any("KeyError" in text and "defect of Rankscope" in text for text in watched.said)
    errors = counters(watched.exporter)
    assert errors['rankscope_watch_analysis_errors_total{part="look"}'] > 0
    assert watched.lines() == []
    watched.evaluate()
    assert [line["change"] for line in watched.lines()] == ["opened"]
    watched.cycle.stand_by()
