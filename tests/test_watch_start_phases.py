"""The GPU time of starts, by the phases that agents tell of them."""

import json

import pytest

from rankscope_analyzers.watch.process_starts import ProcessStart
from rankscope_analyzers.watch.start_phases import StartPhases

OWNER = ("llm", "production")
PHASES = {"launch": 5.0, "process": 20.0, "rendezvous": 10.0, "nccl_init": 4.0, "first_step": 15.0}
GPUS = 8


def start(newest=1000.0):
    return ProcessStart(newest, newest, PHASES)


def sums(found):
    return {one.labels[2]: one.value / GPUS for one in found.samples()}


def test_the_time_of_a_restart_is_that_of_its_phases_and_of_what_came_before():
    found = StartPhases()
    found.add(OWNER, "job", GPUS * 90.0, GPUS, start(), 1060.0)
    assert sums(found) == {
        "first_step": 15.0,
        "rendezvous": 10.0,
        "process": 20.0,
        "launch": 5.0,
        "before": 40.0,
    }


def test_of_a_shorter_time_the_last_phases_come_first():
    found = StartPhases()
    found.add(OWNER, "job", GPUS * 30.0, GPUS, start(), 1060.0)
    assert sums(found) == {"first_step": 15.0, "rendezvous": 10.0, "process": 5.0, "before": 0.0}


def test_phases_that_come_later_are_waited_for_and_each_start_counts_once():
    found = StartPhases()
    found.add(OWNER, "job", GPUS * 50.0, GPUS, start(), 1060.0)
    found.add(OWNER, "job", GPUS * 50.0, GPUS, start(), 1200.0)
    found.add(OWNER, "job", 0.0, GPUS, start(), 1230.0)
    assert sum(sums(found).values()) == 50.0
    found.add(OWNER, "job", 0.0, GPUS, start(1170.0), 1260.0)
    found.add(OWNER, "job", 0.0, GPUS, start(1170.0), 1290.0)
    assert sums(found)["first_step"] == 30.0
    assert sum(sums(found).values()) == 100.0


@pytest.mark.parametrize(("seconds", "phases"), [(119.0, {}), (120.0, {"unknown": 50.0})])
def test_without_phases_for_two_minutes_they_are_unknown(seconds, phases):
    found = StartPhases()
    found.add(OWNER, "job", GPUS * 50.0, GPUS, None, 1000.0)
    found.add(OWNER, "job", 0.0, GPUS, None, 1000.0 + seconds)
    assert sums(found) == phases


@pytest.mark.parametrize(("age", "known"), [(949.0, True), (951.0, False)])
def test_a_start_of_long_ago_is_not_the_one_that_was_counted(age, known):
    found = StartPhases()
    found.add(OWNER, "job", GPUS * 50.0, GPUS, start(2000.0 - age), 2000.0)
    assert bool(sums(found)) == known


def test_sums_outlive_a_watch_and_jobs_do_not():
    found, later = StartPhases(), StartPhases()
    found.add(OWNER, "job", GPUS * 50.0, GPUS, start(), 1060.0)
    found.add(OWNER, "other", GPUS * 50.0, GPUS, None, 1060.0)
    found.forget(["other"])
    found.add(OWNER, "other", 0.0, GPUS, None, 1600.0)
    later.restore(json.loads(json.dumps(found.kept())))
    assert sums(later) == sums(found)
    assert sum(sums(later).values()) == 50.0


@pytest.mark.parametrize("bad", [[["a", "b", {"sleep": 1.0}]], [["a", "b", {"launch": -1.0}]], [1]])
def test_what_is_no_sum_of_a_phase_is_not_restored(bad):
    with pytest.raises((TypeError, ValueError)):
        StartPhases().restore(bad)
