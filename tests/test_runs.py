"""Runs of a job: matrices and incidents are made of the same ones."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps import frames, runs
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.shape import Shape
from simulated_jobs import Job, records
from suite_jobs import made, running

STEPS = 40


def steps_of_runs(rows, world=4):
    """Return the step times (steps, ranks) of each run that the detector is given."""
    job = Layout(world, 1, 1, 0, wall=True, by_groups=True)
    runs = []
    for one in feed.assembled(FrameTable(rows), job, Account()):
        if isinstance(one, Shape):
            runs.append([])
        else:
            runs[-1].append(one.steps.step.reshape(len(one.counters), -1))
    return [np.concatenate(parts) for parts in runs]


def later(rows, seconds, first=STEPS // 2):
    """Return records with a pause before a step."""
    moved = rows["t_start_unix_seconds"] + seconds * (rows["step"] >= first)
    return rows.assign(t_start_unix_seconds=moved)


def test_matrices_hold_the_steps_that_the_detector_is_given():
    job = made(world=8, tensor=1, pipeline=1, steps=120, restart=70, missing=0.02)
    starts = np.array([one.begin_unix_seconds for one in job.attempts])
    begun = job.records["t_start_unix_seconds"]
    rows = running(job, attempt=np.searchsorted(starts, begun + 1.0) - 1)
    frame, runs = frames.build("job", rows), steps_of_runs(rows, 8)
    assert len(runs) == len(job.attempts) == len(np.unique(frame.segments))
    for number, steps in enumerate(runs):
        np.testing.assert_array_equal(frame.step[frame.segments == number], steps)


@pytest.mark.parametrize(("seconds", "runs"), [(4.0, 1), (30.0, 2)])
def test_a_long_silence_ends_a_run_and_is_no_restart(seconds, runs):
    rows = later(records(Job(ranks=4, steps=STEPS)), seconds)
    assert len(steps_of_runs(rows)) == runs
    frame = frames.build("job", rows, newest_run=True)
    assert (len(frame.steps), np.unique(frame.segments).tolist()) == (STEPS, [0])


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_a_later_attempt_is_a_restart_for_both(seconds):
    rows = later(records(Job(ranks=4, steps=STEPS)), seconds)
    rows["attempt"] = (rows["step"] >= STEPS // 2).astype(int)
    assert [len(one) for one in steps_of_runs(rows)] == [STEPS // 2, STEPS // 2]
    assert len(frames.build("job", rows, newest_run=True).steps) == STEPS // 2


def test_an_attempt_that_one_rank_names_late_tears_no_run_apart():
    """Its counter falls back nowhere, and nobody else has restarted."""
    rows = records(Job(ranks=4, steps=STEPS))
    rows["attempt"] = ((rows["rank"] == 1) & (rows["step"] == 20)).astype(int)
    frame, runs = frames.build("job", rows), steps_of_runs(rows)
    assert len(runs) == len(np.unique(frame.segments))


def test_two_processes_of_one_rank_are_counted_alike():
    rows = records(Job(ranks=4, steps=STEPS))
    other = rows[rows["rank"] == 2].assign(step_seconds=lambda one: one["step_seconds"] + 0.1)
    both, account = pd.concat([rows, other], ignore_index=True), Account()
    job = Layout(4, 1, 1, 0, wall=True, by_groups=True)
    list(feed.assembled(FrameTable(both), job, account))
    frame = frames.build("job", both)
    assert [(one.reason, one.count) for one in account.dropped] == [("contested", STEPS)]
    assert frame.dropped == account.dropped


@pytest.mark.parametrize("ahead", [0.5, 2.0, 3.5, 6.0])
def test_ranks_whose_hosts_are_steps_ahead_of_the_others_are_of_one_run(ahead):
    """As with CUDA: hosts run ahead of their devices, and those that wait for a slow one most."""
    rows = records(Job(ranks=4, steps=STEPS))
    step = rows["step_seconds"].median()
    rows["t_start_unix_seconds"] -= ahead * step * (rows["rank"] < 3)
    assert [len(one) for one in steps_of_runs(rows)] == [STEPS]


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_steps_that_ranks_count_anew_are_a_restart_whatever_their_number_is_then(ranks):
    first, second = records(Job(ranks=4, steps=STEPS)), records(Job(ranks=ranks, steps=STEPS))
    pause = first["t_start_unix_seconds"].max() - second["t_start_unix_seconds"].min() + 2.0
    second["t_start_unix_seconds"] += pause
    both = pd.concat([first, second])
    assert [len(one) for one in steps_of_runs(both, ranks)][-1] == STEPS


def test_newest_step_of_each_rank_before_a_record():
    step, rank = np.array([5, 2**53, 6, 4, 7, 1]), np.array([0, 1, 0, 1, 0, 2])
    found = runs._own_before(step, rank, np.array([3, -1, -1]))
    assert found.tolist() == [3, -1, 5, 2**53, 6, -1]
