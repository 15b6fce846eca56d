"""Rollouts between steps look like checkpoints: their lengths vary, and storage is not slow."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.special_steps import CheckpointHistory
from simulated_jobs import Fault, Job, findings, records

EVERY, SECONDS, SPREAD = 8, 20.0, 0.6


def with_rollouts(job, seed):
    """Return the records of a job whose ranks generate samples, each for as long as it takes."""
    rows = records(job, seed)
    random = np.random.default_rng(seed)
    extra = np.zeros((job.steps, job.ranks))
    due = np.arange(job.steps) % EVERY == EVERY - 1
    extra[due] = SECONDS * np.exp(SPREAD * random.standard_normal((due.sum(), job.ranks)))
    longest = extra.max(axis=1, keepdims=True)
    waited = np.vstack([np.zeros(job.ranks), (longest - extra)[:-1]])
    before = np.vstack([[[0.0]], np.cumsum(longest, axis=0)[:-1]])
    rows["t_start_unix_seconds"] += (before - waited).ravel()
    rows["sync_seconds"] += waited.ravel()
    rows["step_seconds"] += (waited + extra).ravel()
    timed = rows[["data_seconds", "compute_seconds", "sync_seconds"]].sum(axis=1)
    rows["other_seconds"] = rows["step_seconds"] - timed
    return rows.assign(timing_source="wall")


@pytest.mark.parametrize(("ranks", "per_node"), [(8, 8), (16, 1), (32, 8)])
@pytest.mark.parametrize("seed", range(4))
def test_that_rollouts_are_longer_now_and_then_is_not_called_slow_storage(ranks, per_node, seed):
    job = Job(ranks=ranks, steps=400, compute=0.5, transfer=0.05, ranks_per_node=per_node)
    assert findings(with_rollouts(job, seed)) == []


def test_a_slow_rank_is_found_beside_rollouts():
    slow = Fault("compute", (5,), 0.25, first_step=60)
    said = findings(with_rollouts(Job(steps=400, compute=0.5, transfer=0.05, faults=(slow,)), 0))
    assert [(one.kind, one.where.ranks) for one in said] == [("gpu_compute", (5,))]


def job_of(nodes):
    return Shape(1, nodes, 1, 1, False, np.arange(nodes).reshape(1, nodes, 1))


def found(nodes, times):
    """Return the ranks that are named after each special step, None where none is slow."""
    history, shape, named = CheckpointHistory(), job_of(nodes), []
    for number, each in enumerate(times):
        _, slow = history.add(8 * number, np.reshape(each, shape.sizes), shape, 1.0)
        named.append(slow and slow.ranks)
    return named


def written(*slow, nodes=4):
    """Return checkpoints in each of which one node is slow, or none."""
    usual = 3.0 + 0.1 * np.arange(nodes)
    return [np.where(np.arange(nodes) == one, 12.0, usual) for one in slow]


@pytest.mark.parametrize(
    ("slow", "named"),
    [
        ([None, 2, 2], 2),
        ([2, 2], None),
        ([2, 2, 2], 2),
        ([None, 1, None, 2, 2], None),
        ([None, 1, None, 2, 2, 2], 2),
        ([None, 2, None, 2, 2], 2),
        ([None, 1, 1, None, 3, 2, 2, 2], None),
        ([None, 1, 1, None, 3, 2, 2, 2, 2], 2),
        ([None, 1, 1, 1, 2, 2], 2),
        ([None, *[1, None, 2, None] * 3, *[3] * 5], None),
        ([None, *[1, None, 2, None] * 3, *[3] * 6], 3),
    ],
)
def test_a_node_that_is_slow_alone_is_named_once_that_is_not_how_unequal_nodes_are(slow, named):
    last = found(4, written(*slow))[-1]
    assert last == (None if named is None else (named,))


def test_one_of_two_nodes_is_named_if_it_is_slow_for_longer_than_before():
    once_before = written(None, 1, None, 1, 1, 1, nodes=2)
    assert found(2, once_before) == [None] * 5 + [(1,)]


@pytest.mark.parametrize(
    ("usual", "slow"), [(1, [None] * 6), (2, [None] * 4 + [(), ()]), (3, [None] * 5 + [()])]
)
def test_on_one_node_three_checkpoints_show_how_long_they_usually_take(usual, slow):
    assert found(1, [3.0] * usual + [12.0] * (6 - usual)) == slow


def test_on_several_nodes_one_checkpoint_shows_it():
    short = written(None)[0]
    assert found(4, [short, 4.0 * short, 4.0 * short]) == [None, None, ()]
