"""Input is compared with what ranks waited at the start, for as many samples as they have now."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from free_running_jobs import computing, findings, records
from rankscope_analyzers.stragglers.baselines import with_new_pace
from straggler_views import past, shape

STEPS, WORLD, GROWS = 300, 8, 120


def loading(seconds, *, steps=STEPS, seed=3):
    """Return (steps, ranks) of input times that vary a little."""
    random = np.random.default_rng(seed)
    return seconds * (1 + 0.1 * np.abs(random.standard_normal((steps, WORLD))))


def growing(times):
    """Return (steps, 1) of factors: 1 until batches grow."""
    return np.where(np.arange(STEPS) < GROWS, 1.0, times)[:, None]


def blamed(rows):
    return [(one.kind, one.where.ranks) for one in findings(rows)]


class TestLargerBatches:
    @pytest.mark.parametrize(("times", "data"), [(2, 0.06), (3, 0.05), (10, 0.04)])
    def test_that_take_as_much_longer_to_load_are_no_slow_storage(self, times, data):
        more = growing(times)
        rows = records(computing(STEPS, WORLD) * more, data=loading(data) * more, samples=32 * more)
        assert blamed(rows) == []

    def test_that_take_longer_to_load_than_their_samples_are_slow_storage(self):
        more = growing(2)
        rows = records(
            computing(STEPS, WORLD) * more, data=loading(0.06) * more**3, samples=32 * more
        )
        assert blamed(rows) == [("storage_checkpoint", ())]

    def test_do_not_hide_the_rank_whose_input_is_slow(self):
        more = growing(2)
        data = loading(0.06) * more
        data[150:, 3] += 0.3
        rows = records(computing(STEPS, WORLD) * more, data=data, samples=32 * more)
        assert blamed(rows) == [("data_loader", (3,))]

    def test_of_fewer_ranks_after_a_restart_are_no_slow_storage(self):
        before = records(computing(150, 16), data=0.06, samples=32).assign(attempt=0)
        after = records(2 * computing(200, WORLD, seed=8), data=0.12, samples=64)
        began = before["t_start_unix_seconds"].max() + 100
        after["t_start_unix_seconds"] += began - after["t_start_unix_seconds"].min()
        after = after.assign(attempt=1, step=after["step"] + 140)
        assert blamed(pd.concat([before, after], ignore_index=True)) == []


def in_turns(wait, *, since=0, workers=8, seed=0):
    """Return (steps, ranks) of the waits for workers that deliver their batches together."""
    random = np.random.default_rng(seed)
    phase = random.integers(0, workers, WORLD)
    steps = np.arange(STEPS)[:, None]
    return 0.001 + wait * (((steps + phase) % workers == 0) & (steps >= since))


class TestWaitsThatVary:
    @pytest.mark.parametrize("seed", range(3))
    def test_as_they_did_from_the_start_are_no_slow_storage(self, seed):
        waits = 0.15 * np.random.default_rng(seed).exponential(1, (STEPS, WORLD))
        assert blamed(records(computing(STEPS, WORLD), data=waits)) == []

    @pytest.mark.parametrize("wait", [0.3, 0.4])
    def test_for_workers_that_deliver_together_from_the_start_are_none(self, wait):
        assert blamed(records(computing(STEPS, WORLD), data=in_turns(wait))) == []

    def test_for_workers_that_become_slow_are_slow_storage(self):
        rows = records(computing(STEPS, WORLD), data=in_turns(0.6, since=100))
        assert blamed(rows) == [("storage_checkpoint", ())]

    @pytest.mark.parametrize("workers", [2, 3, 4, 8])
    @pytest.mark.parametrize("times", [0.5, 1.0, 2.0])
    def test_of_all_ranks_in_the_same_steps_are_slow_storage(self, workers, times):
        """Loaders that began together deliver together, here up to 16 s late."""
        steps = np.arange(STEPS)[:, None]
        due = (steps % workers == 0) & (steps >= 120)
        rows = records(computing(STEPS, WORLD), data=loading(0.01) + times * workers * due)
        assert blamed(rows) == [("storage_checkpoint", ())]

    @pytest.mark.parametrize("every", [20, 50, 150])
    @pytest.mark.parametrize("since", [0, 150])
    @pytest.mark.parametrize("wait", [1.0, 8.0])
    def test_of_all_ranks_for_the_first_batch_of_an_epoch_are_none(self, every, since, wait):
        steps = np.arange(STEPS)[:, None]
        due = (steps % every == 0) & (steps >= since)
        assert blamed(records(computing(STEPS, WORLD, 0.5), data=loading(0.01) + wait * due)) == []

    def test_are_slow_storage_although_one_of_the_first_steps_waited_for_long(self):
        data = loading(0.02)
        data[20] += 2.0
        data[150:] += 0.08
        assert ("storage_checkpoint", ()) in blamed(records(computing(STEPS, WORLD), data=data))


def test_a_new_pace_with_more_samples_has_as_much_more_input():
    alike = (30, *(arranged := shape()).sizes)
    rows = {
        "relative": np.ones(alike),
        "replica": np.ones((30, arranged.replicas)),
        "stage": np.ones((30, 1)),
        "transfer": np.ones((30, 1, 1)),
        "data_median": np.full(30, 9.0),
        "input": np.full(alike, 9.0),
        "duration": np.ones(30),
        "work": np.full(alike, 64.0),
    }
    known = past(arranged, data=0.1, data_mean=0.2, waits=0.3, work=32.0)
    made = with_new_pace(known, rows, arranged)
    assert (made.data, made.data_mean, made.waits, made.work) == (0.2, 0.4, 0.6, 64.0)


class TestWaitsNowAndThen:
    @pytest.mark.parametrize("share", [0.02, 0.05])
    @pytest.mark.parametrize("seed", range(3))
    def test_on_any_rank_accuse_none_that_has_more_of_them_by_chance(self, share, seed):
        dry = np.random.default_rng(seed).random((2 * STEPS, WORLD)) < share
        rows = records(computing(2 * STEPS, WORLD), data=0.001 + 0.5 * dry)
        assert blamed(rows) == []

    @pytest.mark.parametrize("workers", [4, 6, 8])
    @pytest.mark.parametrize("share", [0.0, 0.01])
    def test_that_come_evenly_on_one_rank_are_its_slow_input(self, workers, share):
        waits = np.random.default_rng(1).random((STEPS, WORLD)) < share
        waits[100::workers, 3] = True
        rows = records(computing(STEPS, WORLD), data=0.001 + 0.5 * waits)
        assert set(blamed(rows)) == {("data_loader", (3,))}

    @pytest.mark.parametrize("members", [1, 4])
    def test_that_are_frequent_on_some_ranks_are_their_slow_input(self, members):
        waits = np.zeros((STEPS, WORLD), dtype=bool)
        waits[100:, :members] = np.random.default_rng(1).random((STEPS - 100, 1)) < 0.4
        rows = records(computing(STEPS, WORLD), data=0.001 + 0.5 * waits)
        assert {kind for kind, _ in blamed(rows)} == {"data_loader"}
        assert {ranks for _, named in blamed(rows) for ranks in named} == set(range(members))
