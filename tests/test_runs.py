"""Runs of a job: matrices and incidents are made of the same ones."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps import frames, runs
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account
from rankscope_analyzers.steps.rows import Rows, usable_rows
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


def restarted(before, after, seconds, first):
    """Return records of two runs of a job of six ranks at most.

    Args:
        before: ranks whose records of the first run there are.
        after: number of ranks of the second run.
        seconds: between both.
        first: rank whose steps begin before those of the others, if by little.
    """
    old, new = records(Job(ranks=4, steps=STEPS)), records(Job(ranks=after, steps=STEPS))
    old = old[old["rank"].isin(before)]
    end = (old["t_start_unix_seconds"] + old["step_seconds"]).max()
    new["t_start_unix_seconds"] += end - new["t_start_unix_seconds"].min() + seconds
    new.loc[new["rank"] == first, "t_start_unix_seconds"] -= 0.01
    return old, new


@pytest.mark.parametrize("seconds", [2.0, 30.0])
@pytest.mark.parametrize(
    ("before", "after", "first"),
    [((0, 1, 2, 3), 6, 5), ((0, 1, 2, 3), 6, 4), ((0, 1, 2), 4, 3), ((2, 3), 4, 0)],
)
def test_a_rank_that_was_not_there_before_hides_no_restart(before, after, first, seconds):
    old, new = restarted(before, after, seconds, first)
    frame = frames.build("job", pd.concat([old, new]), newest_run=True)
    assert (len(frame.steps), len(set(frame.segments))) == (STEPS, 1)
    known = np.isfinite(frame.step).sum(axis=0)
    assert (known.min(), known.max()) >= (STEPS - 1, STEPS)
    assert not frame.dropped


@pytest.mark.parametrize("seconds", [2.0, 30.0])
def test_a_rank_far_behind_all_others_when_it_is_first_seen_has_restarted(seconds):
    """Even though none of the others has records of its own yet."""
    old, new = restarted((0, 1, 2, 3), 6, seconds, 5)
    old["step"] += 2 * runs.MOST_AHEAD_STEPS
    found = [len(one) for one in steps_of_runs(pd.concat([old, new]), 6)]
    assert found == [STEPS, STEPS]


def test_a_rank_that_is_first_seen_some_steps_behind_has_not_restarted():
    """Watched from the middle on, with hosts ahead of a device that all others wait for."""
    rows = records(Job(ranks=4, steps=STEPS))
    step = rows["step_seconds"].median()
    rows["t_start_unix_seconds"] -= 6 * step * (rows["rank"] < 3)
    rows = rows[rows["t_start_unix_seconds"] > rows["t_start_unix_seconds"].quantile(0.3)]
    assert len(steps_of_runs(rows)) == 1


def restarts(parts):
    """Return the number of restarts before each record."""
    split = runs.Runs(6)
    return [
        part.restarts for rows in parts for part in split.split(rows) for _ in range(len(part.rows))
    ]


@pytest.mark.parametrize("at_once", [1, 5, 64])
@pytest.mark.parametrize("seconds", [2.0, 30.0])
def test_runs_do_not_depend_on_how_many_records_come_at_once(at_once, seconds):
    both = pd.concat(restarted((0, 1, 2), 6, seconds, 5))
    rows = list(usable_rows(FrameTable(both), Account()))
    assert restarts(rows) == restarts(
        one.at(slice(first, first + at_once))
        for one in rows
        for first in range(0, len(one), at_once)
    )


def of_ranks(step, rank, start):
    """Return records of steps that take a second."""
    step, rank = np.array(step), np.array(rank)
    seconds = {"step_seconds": np.ones(len(step))}
    return Rows(np.arange(len(step)), step, rank, 0 * rank, np.array(start), seconds, {})


def test_a_rank_has_done_a_step_before_even_if_its_last_record_is_of_an_earlier_one():
    split = runs.Runs(2)
    parts = [([3, 3, 1], [0, 1, 1], [0.0, 0.01, 0.02]), ([4, 2], [0, 1], [1.2, 2.4])]
    found = [[len(one.rows) for one in split.split(of_ranks(*part))] for part in parts]
    assert found == [[3], [1, 1]]


def test_newest_step_of_each_rank_before_a_record():
    step, rank = np.array([5, 2**53, 6, 4, 7, 1]), np.array([0, 1, 0, 1, 0, 2])
    found = runs._own_before(step, rank, np.array([3, -1, -1]))
    assert found.tolist() == [3, -1, 5, 2**53, 6, -1]
