"""Starts of processes that are counted once, buckets of recoveries, and sums that just began."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.contract.metrics import goodput
from rankscope_analyzers.goodput.account import Recovery
from rankscope_analyzers.watch.completions import Completions, Open
from rankscope_analyzers.watch.interruptions import Interruptions
from rankscope_analyzers.watch.process_starts import ProcessStart
from rankscope_analyzers.watch.recoveries import Recoveries
from rankscope_analyzers.workloads import kinds
from workload_objects import START, kind, thing

MINUTE = 60.0


def bucket(samples, name):
    """Return the lowest bound of the only histogram of this name whose bucket holds its value."""
    (value,) = [sample.value for sample in samples if sample.metric.name == name]
    assert value.count == 1
    return next((bound for bound, count in value.buckets if count), None)


def opened():
    return Completions(open={"1": Open("PyTorchJob", "team", "research")})


def job():
    of = kind("PyTorchJob")
    return SimpleNamespace(top=kinds.read(of, thing(of, uid="1")))


@pytest.mark.parametrize(("later", "counted"), [(5.0, 1), (5.1, 2)])
def test_a_start_within_five_seconds_of_the_one_before_is_the_same(later, counted):
    sums = opened()
    for earliest in (START + 60, START + 61 + later):
        sums.processes_started(job(), ProcessStart(earliest, START + 61, {"launch": 1.0}))
    assert sums.startups["research", "launch"].value().count == counted


@pytest.mark.parametrize(("before", "counted"), [(4.9, True), (5.0, False)])
def test_processes_may_have_started_five_seconds_before_their_job_was_created(before, counted):
    sums = opened()
    sums.processes_started(job(), ProcessStart(START - before, START, {"launch": 1.0}))
    assert bool(sums.startups) == counted


RECOVERED = [15.0, *(MINUTE * n for n in (1, 2, 5, 10, 20, 30, 60, 120))]


@pytest.mark.parametrize(
    ("bound", "following"), [*zip(RECOVERED, [*RECOVERED[1:], None], strict=True)]
)
def test_recoveries_are_counted_from_a_quarter_of_a_minute_to_two_hours(bound, following):
    for seconds, expected in ((bound, bound), (bound + 1, following)):
        sums = Recoveries()
        sums.add("team/job", "research", [Recovery("restart", seconds)])
        assert bucket(sums.samples(), goodput.RECOVERIES.name) == expected


def test_sums_of_interruptions_begin_at_nothing():
    sums = Interruptions()
    sums.add(("vision", "research"), {"productive": 80.0}, 8, 0, 0)
    assert {(s.metric.name, s.value) for s in sums.samples() if s.value} == {
        (goodput.PROJECT_JOB_SECONDS.name, 10.0)
    }
    sums = Interruptions()
    sums.detect(("vision", "research"), 30.0)
    assert {(s.metric.name, s.value) for s in sums.samples() if s.value} == {
        (goodput.PROJECT_DETECTIONS.name, 1.0),
        (goodput.PROJECT_DETECTION_SECONDS.name, 30.0),
    }
