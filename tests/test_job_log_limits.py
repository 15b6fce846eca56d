"""Limits of traces and of MLflow's runs: how long jobs are followed, how much of them is told."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from goodput_records import end, run, table
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.tracing.spans import identity_of, trace_of
from rankscope_analyzers.tracing.traces import Traces
from rankscope_analyzers.tracking.mlflow_api import MlflowApi
from rankscope_analyzers.tracking.run_values import RunValues, of_jobs
from rankscope_analyzers.tracking.runs import RunLog, Runs
from test_incident_history import reported

STEPS = run(1000.0, range(1, 6))


def slow():
    """Return the report on a job with one fault; `reported` keeps it."""
    return reported(last=220)


def the_fault():
    (found,) = slow().incidents
    return found


class Told:
    """Traces, and the spans that they send."""

    def __init__(self):
        self.spans = []
        self.traces = Traces(self.spans.extend)

    def look(self, *jobs, now, incidents=(), rows=STEPS):
        """Look at jobs; return the names of what ended."""
        self.spans.clear()
        records, reports = [], []
        for name in jobs:
            records.append(JobRecords(name, table(rows).assign(job_id=name), 4, (), live=True))
            changed = {"made_unix_seconds": now, "incidents": tuple(incidents)}
            reports.append(replace(slow(), job_id=name, **changed))
        gathered = Gathered(tuple(records), JobEvidence(Observed({})))
        assert self.traces.look(gathered, reports, now) == []
        return [one.name for one in self.spans]


@pytest.mark.parametrize(("pause", "ended"), [(1800.0, []), (1801.0, ["attempt", "job"])])
def test_the_span_of_a_job_ends_half_an_hour_after_its_last_step(pause, ended):
    told = Told()
    assert told.look("job", now=end(STEPS) + pause) == ended


def test_of_more_jobs_than_a_thousand_the_span_of_the_one_that_stood_longest_ends():
    told = Told()
    told.look("first", now=1010.0)
    first = told.traces.kept()[0]
    kept = [{**first, "job_id": f"{n}", "last_end": first["last_end"] + 1} for n in range(999)]
    told.traces.restore([first, *kept])
    assert told.look(now=1010.0) == []
    extra = {**first, "job_id": "extra", "last_end": first["last_end"] + 2}
    told.traces.restore([first, *kept, extra])
    assert told.look(now=1010.0) == ["attempt", "job"]
    assert {one.attributes["rankscope.job.id"] for one in told.spans} == {"first"}


@pytest.mark.parametrize(("early", "told_again"), [(0.15, ["checkpoint"]), (0.25, [])])
def test_a_step_may_begin_a_fifth_of_a_second_before_the_end_of_the_one_before(early, told_again):
    told = Told()
    told.look("job", now=1010.0)
    saving = run(end(STEPS) - early, [6], lambda *_: {"checkpoint": 0.5}, first=False)
    assert told.look("job", now=1011.0, rows=saving) == told_again


def incident(number):
    fault = the_fault()
    return replace(fault, timing=replace(fault.timing, kind=f"kind-{number}"))


def test_a_span_names_64_ranks_and_64_incidents_of_a_job_are_followed():
    told = Told()
    fault = the_fault()
    wide = replace(fault, where=replace(fault.where, ranks=tuple(range(99))))
    told.look("job", now=1010.0, incidents=[wide])
    (opened,) = told.traces.kept()[0]["open"].values()
    assert list(opened["ranks"]) == list(range(64))
    told.look("job", now=1011.0, incidents=[incident(number) for number in range(99)])
    assert len(told.traces.kept()[0]["open"]) == 64


def test_identifiers_have_the_length_of_the_w3cs():
    """Of 256 of them the longest has all its bits."""
    traces = [trace_of("job", float(moment)) for moment in range(256)]
    assert max(traces).bit_length() == 128
    assert max(identity_of(trace, "job") for trace in traces).bit_length() == 64


VALUES = RunValues({"m": 1.0}, {})


class Api:
    """A tracking server that takes everything."""

    def __init__(self):
        self.begun, self.ended = [], []

    def experiment(self, name):
        return name

    def running(self, experiment):
        return {job: (job, True) for job in self.begun}

    def begin(self, experiment, job, now):
        self.begun.append(job)
        return job

    def log(self, run, values, now):
        pass

    def end(self, run, now):
        self.ended.append(run)


@pytest.mark.parametrize(("pause", "ended"), [(1800.0, []), (1801.0, ["a"])])
def test_a_run_ends_half_an_hour_after_the_last_report_on_its_job(pause, ended):
    api = Api()
    log = RunLog(api, "own")
    log.write({"a": VALUES}, 1000.0)
    log.write({"b": VALUES}, 1000.0 + pause)
    assert api.ended == ended


@pytest.mark.parametrize(("pause", "logged"), [(59.9, 1000.0), (60.0, 1060.0)])
def test_a_run_has_a_value_a_minute(pause, logged):
    runs = Runs(RunLog(Api(), "own"), pytest.fail)
    runs._thread = SimpleNamespace()  # none that takes what waits
    runs.look([], [], 1000.0)
    runs.look([], [], 1000.0 + pause)
    assert runs._waiting.now == logged


def test_a_watch_that_ends_waits_fifteen_seconds_for_what_is_to_be_logged():
    runs = Runs(RunLog(Api(), "own"), pytest.fail)
    waited = []
    runs._thread = SimpleNamespace(join=waited.append)
    runs.close()
    assert waited == [15.0]


def test_a_tag_has_a_thousand_characters():
    long = replace(the_fault(), summary="x" * 5000, until_unix_seconds=None)
    (found,) = of_jobs([], [replace(slow(), incidents=(long,))]).values()
    assert 990 <= found.tags["rankscope.incident"].count("x") <= 1000


class Server:
    """Answers each request alike, and notes what it is asked and how long it has."""

    def __init__(self, answer):
        self.answer, self.deadlines, self.bodies, self.sizes = answer, [], [], []

    def open(self, request, deadline):
        self.deadlines.append(deadline.seconds)
        self.bodies.append(json.loads(request.data) if request.data else None)
        return self

    def read(self, most):
        self.sizes.append(most)
        return self.answer[:most]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_a_tracking_server_has_ten_seconds_and_16_mib_for_an_answer():
    server = Server(b'{"experiment_id": 7, "experiment": {"experiment_id": 7}}')
    assert MlflowApi("http://m", server).experiment("own") == "7"
    assert (server.deadlines, server.sizes) == ([10.0], [1 << 24])


def test_ten_thousand_runs_are_looked_through_five_hundred_at_a_time():
    server = Server(b'{"runs": [], "next_page_token": "more"}')
    assert MlflowApi("http://m", server).running("7") == {}
    assert [one["max_results"] for one in server.bodies] == [500] * 20
