"""A slow GPU is not excused by samples that it has more of, unless these take as long."""

from __future__ import annotations

import numpy as np
import pytest

from free_running_jobs import computing, findings, records

STEPS, WORLD, SINCE = 300, 8, 100


def first(rows):
    found = findings(rows)
    return (found[0].kind, found[0].where.ranks) if found else None


def counts(share, *, rank=3, world=WORLD):
    samples = np.full(world, 32.0)
    samples[rank] *= share
    return samples


@pytest.mark.parametrize("share", [1.12, 1.25])
def test_a_rank_with_more_samples_whose_gpu_throttles_has_a_slow_gpu(share):
    samples = counts(share)
    compute = computing(STEPS, WORLD, seed=5) * samples / 32
    compute[SINCE:, 3] *= 1.6
    assert first(records(compute, samples=samples)) == ("gpu_compute", (3,))


@pytest.mark.parametrize("world", [4, 8])
def test_a_fast_gpu_with_more_samples_from_the_start_is_slow_once_it_throttles(world):
    compute = computing(STEPS, world, seed=5)
    compute[SINCE:, 3] *= 1.5
    rows = records(compute, samples=counts(2, world=world))
    assert first(rows) == ("gpu_compute", (3,))


@pytest.mark.parametrize("since", [0, SINCE])
@pytest.mark.parametrize("power", [0.8, 1.0, 1.7])
def test_samples_that_take_as_long_as_they_should_are_unevenly_distributed(since, power):
    """A sample of more tokens takes more than its share: attention grows with their square."""
    samples = np.where(np.arange(STEPS)[:, None] < since, 32.0, counts(1.4))
    compute = computing(STEPS, WORLD, seed=5) * (samples / 32) ** power
    assert first(records(compute, samples=samples)) == ("partition_imbalance", ())


def test_counts_that_differ_in_each_step_still_explain_what_they_take():
    samples = np.random.default_rng(0).integers(6, 11, (STEPS, WORLD)) * 4.0
    compute = computing(STEPS, WORLD, seed=2) * samples / 32
    assert first(records(compute, samples=samples)) == ("partition_imbalance", ())
