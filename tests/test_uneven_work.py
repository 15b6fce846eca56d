"""Ranks that compute longer because of their work, wherever it went: none of their GPUs is slow."""

from dataclasses import replace

import numpy as np
import pytest

from rankscope_analyzers.stragglers import uneven_work
from simulated_jobs import Fault, Job, findings, records
from straggler_views import ranks, shape
from suite_jobs import fault, made
from suite_jobs import found as incidents_of


def job(*faults, count=16, **changes):
    """Return the findings of a job whose ranks are timed by their hosts."""
    rows = records(Job(ranks=count, faults=faults, **changes))
    return findings(rows.assign(timing_source="host", other_seconds=0.01))


@pytest.mark.parametrize(
    ("slow", "count"),
    [
        (range(1, 16, 2), 16),  # context parallelism of two ranks without balance
        (range(3, 16, 4), 16),  # and of four
        (range(0, 24, 8), 24),  # the first rank of each of three nodes
    ],
)
def test_ranks_at_the_same_places_of_all_nodes_have_more_work(slow, count):
    (found,) = job(Fault("compute", tuple(slow), 0.3), count=count)
    assert (found.kind, found.where.ranks) == ("partition_imbalance", ())
    assert found.summary.startswith("the work is split unevenly: the rank with the most computes")
    assert "their part of a sequence in context parallelism" in found.action


@pytest.mark.parametrize("slow", [(3,), (3, 5), (3, 11), (3, 6, 11), tuple(range(8, 16))])
def test_ranks_at_places_of_their_own_have_slow_gpus(slow):
    (found,) = job(Fault("compute", slow, 0.3, first_step=60))
    assert (found.kind, set(found.where.ranks)) == ("gpu_compute", set(slow))


def wandering(seed, seconds=40, by=0.08):
    """Return eight ranks' shares of the work, which drift apart and together for 320 steps."""
    random = np.random.default_rng(seed)
    shares, kept = np.zeros((320, 8)), np.exp(-1 / seconds)
    shares[0] = random.standard_normal(8)
    for step in range(1, 320):
        new = random.standard_normal(8)
        shares[step] = kept * shares[step - 1] + np.sqrt(1 - kept**2) * new
    return np.exp(by * shares)


@pytest.mark.parametrize("seed", range(3))
def test_experts_that_get_more_tokens_for_a_while_are_no_slow_gpus(seed):
    shares = wandering(seed)
    rows = records(Job(steps=320, warm_up=0))
    longer = (rows["compute_seconds"].to_numpy().reshape(320, 8) * (shares - 1)).ravel()
    busy = longer.reshape(320, 8)
    waits = (busy.max(axis=1, keepdims=True) - busy).ravel()
    rows["compute_seconds"] += longer
    rows["sync_seconds"] += waits
    rows["step_seconds"] += longer + waits
    begun = rows["step_seconds"].to_numpy().reshape(320, 8).max(axis=1).cumsum()
    rows["t_start_unix_seconds"] = 1_760_000_000.0 + np.repeat(np.append(0.0, begun[:-1]), 8)
    found = findings(rows.assign(timing_source="kernel", other_seconds=0.01))
    assert (found[0].kind, found[0].where.ranks) == ("partition_imbalance", ())


def test_a_slow_rank_is_named_among_ranks_whose_steps_vary_at_random():
    rows = job(Fault("compute", (3,), 0.4, first_step=60), count=8, noise=0.15)
    assert [(one.kind, one.where.ranks) for one in rows][:1] == [("gpu_compute", (3,))]


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 2), (4, 1)])
def test_a_slow_node_of_a_job_with_other_groups_has_slow_gpus(tensor, pipeline):
    """Ranks there are compared with the median of their replica, which a slow one raises."""
    (found,) = incidents_of(
        made(fault("gpu_compute", "node", 1.5, last=220), tensor=tensor, pipeline=pipeline)
    )
    assert (found.kind, set(found.ranks) >= set(range(8, 16))) == ("gpu_compute", True)


def window(each, noise=0.0):
    """Return (16, 1, 8, 1): compute of eight ranks over their usual share."""
    random = np.random.default_rng(3)
    return np.array(each)[None, None, :, None] + noise * random.standard_normal((16, 1, 8, 1))


SPREAD = (0.94, 1.06, 1.0, 1.15, 0.93, 1.05, 0.97, 1.02)
ALIKE = (0.99, 1.01, 1.0, 1.15, 0.99, 1.01, 1.0, 1.0)
ONE = ranks({3: 1.0})[..., :] > 0


@pytest.mark.parametrize(
    ("each", "noise", "moved"),
    [
        (SPREAD, 0.0, True),
        (ALIKE, 0.0, False),
        (ALIKE, 0.2, False),
        ((*SPREAD[:3], 1.5, *SPREAD[4:]), 0.0, False),
    ],
)
def test_work_has_moved_where_the_shares_of_all_other_ranks_differ_from_their_usual_ones(
    each, noise, moved
):
    assert uneven_work.has_moved(window(each, noise), ONE) is moved


def test_two_other_ranks_are_too_few_to_tell():
    few = np.where(np.arange(8)[None, None, :, None] < 6, window(SPREAD), np.nan)
    few[:, :, 0:3] = np.nan
    assert not uneven_work.has_moved(few, ONE)


def test_places_are_compared_on_nodes_with_as_many_ranks_only():
    arranged = shape(replicas=8, per_node=4)
    same = ranks({1: 1.0, 3: 1.0, 5: 1.0, 7: 1.0}) > 0
    assert uneven_work.is_divided(arranged, same)
    silent = arranged.nodes.copy()
    silent[0, 6] = -1
    assert not uneven_work.is_divided(replace(arranged, nodes=silent), same)
    assert not uneven_work.is_divided(arranged, np.ones_like(same))
