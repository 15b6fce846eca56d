"""Unequal counts of samples are told from slow GPUs."""

import numpy as np
import pytest

from simulated_jobs import Fault, Job, diagnosed, findings, records

RANKS, STEPS = 8, 120


def dealt(counts, seconds_each=0.05, faults=(), column="samples"):
    """Return records in which each rank computes for as long as its samples (S, R) take."""
    rows = records(Job(ranks=RANKS, steps=STEPS, compute=0.2, warm_up=0, faults=faults))
    work = np.broadcast_to(counts, (STEPS, RANKS))
    extra = seconds_each * work
    longest = extra.max(axis=1)
    rank, step = rows["rank"].to_numpy(), rows["step"].to_numpy()
    rows["compute_seconds"] += extra[step, rank]
    rows["sync_seconds"] += longest[step] - extra[step, rank]
    rows["step_seconds"] += longest[step]
    rows["t_start_unix_seconds"] += np.concatenate([[0.0], np.cumsum(longest)[:-1]])[step]
    return rows.assign(**{column: work[step, rank]})


def judged(rows):
    return diagnosed(rows).verdict


def one_heavy(share=1.5):
    counts = np.full(RANKS, 32.0)
    counts[3] *= share
    return counts


@pytest.mark.parametrize("column", ["samples", "tokens"])
def test_a_rank_with_more_samples_is_no_slow_gpu(column):
    cause = judged(dealt(one_heavy(), column=column)).cause
    assert cause.kind == "partition_imbalance"
    assert cause.where.ranks == ()
    assert "rank 3 gets 48 samples a step, 1.41x the mean of 34" in cause.summary
    assert "each additional one takes 50 ms of compute" in cause.action
    assert cause.evidence[0].unit == "samples"


def test_the_cost_is_what_equal_counts_would_save():
    rows = dealt(one_heavy())
    (found,) = findings(rows)
    saved = 0.05 * (48 - 34)
    assert found.cost.lost_fraction == pytest.approx(
        saved / rows["step_seconds"].median(), rel=0.05
    )


def test_a_changing_rank_with_the_most_is_not_named():
    counts = np.random.default_rng(1).integers(20, 60, size=(STEPS, RANKS)).astype(float)
    (found,) = findings(dealt(counts))
    assert "a changing rank of all" in found.summary
    assert found.action.startswith("Deal equal numbers of samples")


def test_equal_counts_are_no_finding():
    assert not findings(dealt(np.full(RANKS, 32.0)))


def test_counts_that_do_not_explain_the_compute_are_no_finding():
    slow = Fault("compute", (5,), 1.0)
    rows = dealt(one_heavy(1.2), seconds_each=0.0, faults=(slow,))
    assert judged(rows).cause.kind == "gpu_compute"
    assert judged(rows).cause.where.ranks == (5,)


def test_a_slow_gpu_with_equal_counts_stays_a_slow_gpu():
    rows = dealt(np.full(RANKS, 32.0), faults=(Fault("compute", (5,), 1.0),))
    assert judged(rows).cause.where.ranks == (5,)


@pytest.mark.parametrize("unknown", [np.nan, -1, "many"])
def test_without_counts_nothing_is_said(unknown):
    rows = dealt(one_heavy()).assign(samples=unknown)
    assert [found.kind for found in findings(rows)] == ["gpu_compute"]
