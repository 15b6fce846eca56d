"""What a report says of a job's checkpoints: what failed, what would be lost, what saving costs."""

from __future__ import annotations

import numpy as np
import pytest

from faulty_series import JOB, NOW, ODD, VIEW, Reading, befell, observed, of_odd_rank, of_ranks
from rankscope_agent.contract.metrics import reported, training
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.intake.observed import Series, gathered
from rankscope_analyzers.layers import checkpoints


def said(*readings: Reading) -> dict[str, Finding]:
    found = list(checkpoints.findings(observed(*readings), VIEW))
    kinds = {one.kind: one for one in found}
    assert len(kinds) == len(found)
    return kinds


def wrote(ago: float, rank: int = ODD) -> Reading:
    labels = {"job_id": JOB, "rank": str(rank)}
    return Reading(training.CHECKPOINT_LAST_SUCCESS, labels, NOW - ago)


FAILED = befell("checkpoint_write_failed")


def test_a_failed_write_says_what_would_be_lost_now():
    found = said(
        FAILED,
        wrote(900),
        of_odd_rank(reported.CHECKPOINT_STEP, 4000),
        of_odd_rank(training.LAST_STEP, 5250),
    )["checkpoint_failed"]
    assert found.summary.startswith("rank 5 failed to write a checkpoint at ")
    assert found.summary.endswith(", the last good one is 15 min old: 1250 steps would be lost now")
    assert (found.where.ranks, found.where.nodes) == ((ODD,), ("gpu-1",))
    assert found.until_unix_seconds is None
    assert (found.severity, found.runbook) == ("page", "RankscopeCheckpointFailing")


def test_a_failed_write_without_any_good_one_says_so():
    assert said(FAILED)["checkpoint_failed"].summary.endswith(", and none has been written yet")


def test_a_write_that_failed_and_was_made_up_for_is_over():
    found = said(FAILED, wrote(200))["checkpoint_failed"]
    assert found.until_unix_seconds == NOW - 200
    assert "a later one was written" in found.summary


def test_what_another_rank_wrote_does_not_make_up_for_it():
    assert said(FAILED, wrote(200, rank=0))["checkpoint_failed"].until_unix_seconds is None


@pytest.mark.parametrize(("ago", "kinds"), [(1799, {"checkpoint_failed"}), (1800, set())])
def test_half_an_hour_later_it_is_no_news(ago, kinds):
    event = of_odd_rank(reported.TRAINING_EVENT, NOW - ago, event="checkpoint_write_failed")
    assert set(said(event)) == kinds


def test_a_checkpoint_that_could_not_be_loaded_is_over_when_all_train_on():
    refused = befell("checkpoint_load_failed")
    assert said(refused)["checkpoint_not_loaded"].until_unix_seconds is None
    steps = of_odd_rank(training.LAST_STEP_TIMESTAMP, NOW - 1)
    assert said(refused, steps)["checkpoint_not_loaded"].until_unix_seconds == NOW - 1
    early = of_odd_rank(training.LAST_STEP_TIMESTAMP, NOW - 291)
    assert said(refused, early)["checkpoint_not_loaded"].until_unix_seconds is None


def test_several_ranks_that_write_one_file_are_named():
    other = Reading(
        reported.TRAINING_EVENT,
        {"job_id": JOB, "rank": "2", "event": "checkpoint_path_shared"},
        NOW - 60,
        node="gpu-0",
    )
    found = said(befell("checkpoint_path_shared"), other)["checkpoint_overwritten"]
    assert found.where.ranks == (2, ODD)
    assert found.since_unix_seconds == NOW - 60


@pytest.mark.parametrize(("ago", "is_late"), [(600, False), (601, True)])
def test_a_checkpoint_is_overdue_beyond_the_objective(ago, is_late):
    objective = Reading(reported.CHECKPOINT_OBJECTIVE, {}, 600)
    assert ("checkpoint_overdue" in said(objective, wrote(ago))) is is_late
    assert "checkpoint_overdue" not in said(wrote(ago))


def test_the_newest_checkpoint_of_any_rank_counts_and_only_of_a_job_that_lives():
    objective = Reading(reported.CHECKPOINT_OBJECTIVE, {}, 600)
    assert said(objective, wrote(5000), wrote(20, rank=0)) == {}
    over = of_ranks(training.RANK_ALIVE, lambda rank: 0)
    assert said(objective, wrote(5000), *over) == {}


@pytest.mark.parametrize(("free", "is_full"), [(50e9, False), (49.9e9, True), (0.0, True)])
def test_a_store_with_less_than_a_twentieth_left_is_told(free, is_full):
    readings = (
        of_odd_rank(reported.STORE_FREE, free),
        of_odd_rank(reported.STORE_SIZE, 1e12),
    )
    assert ("checkpoint_store_full" in said(*readings)) is is_full
    assert "checkpoint_store_full" not in said(readings[0])


@pytest.mark.parametrize(
    ("first", "last", "hours", "is_told"),
    [
        (100e9, 99e9, 1.0, False),  # full in four days
        (104e9, 99e9, 1.0, True),  # in 20 hours
        (104e9, 99e9, 0.99, False),  # too short a look
        (310e9, 301e9, 1.0, False),  # there is a third left
        (90e9, 99e9, 1.0, False),
    ],
)
def test_a_store_that_fills_within_a_day_is_told_before_it_is_full(first, last, hours, is_told):
    labels = {"job_id": JOB, "rank": str(ODD)}
    times = NOW - 3600 * hours * np.linspace(1.0, 0.0, 9)
    free = Series("gpu-1", reported.STORE_FREE.name, labels, times, np.linspace(first, last, 9))
    size = of_odd_rank(reported.STORE_SIZE, 1e12).series()
    found = {one.kind: one.summary for one in checkpoints.findings(gathered((free, size)), VIEW)}
    assert ("checkpoint_store_full" in found) is is_told
    if is_told:
        assert found["checkpoint_store_full"].endswith(" is full in 19.8 h")


@pytest.mark.parametrize(
    ("first", "last", "is_told"),
    [
        (500e9, 301e9, False),
        (500e9, 299e9, True),
        (249.9e9, 240e9, False),  # full in 24 hours and a quarter
        (250.1e9, 240e9, True),  # in a quarter less
    ],
)
def test_of_a_store_of_which_less_than_three_tenths_are_left_a_day_is_told(first, last, is_told):
    labels = {"job_id": JOB, "rank": str(ODD)}
    times = NOW - 3600 * np.linspace(1.0, 0.0, 9)
    values = np.linspace(first, last, 9)
    free = Series("gpu-1", reported.STORE_FREE.name, labels, times, values)
    size = of_odd_rank(reported.STORE_SIZE, 1e12).series()
    assert bool(list(checkpoints.findings(gathered((free, size)), VIEW))) is is_told


def saves(blocked: float, steps: float, rank: int = ODD) -> tuple[Reading, Reading]:
    labels = {"job_id": JOB, "rank": str(rank)}
    return (
        Reading(training.CHECKPOINT_BLOCKED, labels, blocked),
        Reading(training.STEP_SECONDS, labels, steps),
    )


@pytest.mark.parametrize(
    ("blocked", "steps", "is_told"),
    [(250, 1000, True), (249, 1000, False), (60, 119, False), (60, 120, True)],
)
def test_a_job_that_saves_for_a_quarter_of_its_time_is_told_so(blocked, steps, is_told):
    assert ("checkpoint_share" in said(*saves(blocked, steps))) is is_told


def test_the_rank_that_saves_longest_is_named_and_ranks_are_not_added_up():
    found = said(*saves(500, 1000), *saves(200, 1000, rank=0))["checkpoint_share"]
    assert found.summary == "checkpoints take 50% of the time: no step ends while rank 5 saves"
    assert said(*saves(200, 1000), *saves(200, 1000, rank=0)) == {}


def test_of_a_long_look_back_its_own_time_counts():
    labels = {"job_id": JOB, "rank": str(ODD)}
    blocked = Reading(training.CHECKPOINT_BLOCKED, labels, 5000, 4990)
    steps = Reading(training.STEP_SECONDS, labels, 10_000, 9_400)
    assert said(blocked, steps) == {}
    short = Reading(training.STEP_SECONDS, labels, 10_000, 9_401)
    assert set(said(blocked, short)) == {"checkpoint_share"}
