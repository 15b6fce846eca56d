"""Ranks slow to different degrees are all named; those that fade out into noise are not."""

from __future__ import annotations

import numpy as np
import pytest

from free_running_jobs import computing, findings, records
from rankscope_analyzers.stragglers.attribution import accused_of

STEPS, WORLD, SINCE = 300, 16, 60
SLOW = (2, 7, 12)


def graded(usual, seconds):
    """Return (steps, ranks) of usual seconds, with more on three ranks from a step on."""
    values = np.full((STEPS, WORLD), usual)
    for rank, more in zip(SLOW, seconds, strict=True):
        values[SINCE:, rank] += more
    return values


def blamed(rows):
    return [(one.kind, set(one.where.ranks)) for one in findings(rows)]


class TestThreeRanksOfDifferentDegrees:
    @pytest.mark.parametrize("share", [(0.5, 0.3, 0.2), (1.0, 0.6, 0.4), (0.4, 0.25, 0.15)])
    def test_are_slow_gpus(self, share):
        compute = computing(STEPS, WORLD) * graded(1.0, share)
        assert blamed(records(compute)) == [("gpu_compute", set(SLOW))]

    def test_wait_for_input(self):
        rows = records(computing(STEPS, WORLD), data=graded(0.01, (0.5, 0.3, 0.2)))
        assert blamed(rows) == [("data_loader", set(SLOW))]

    def test_wait_for_a_cpu(self):
        rows = records(computing(STEPS, WORLD), cpu_wait=graded(0.0005, (0.5, 0.3, 0.2)))
        assert blamed(rows) == [("host_transient", set(SLOW))]

    def test_are_named_with_their_whole_node(self):
        compute = computing(STEPS, 32)
        compute[SINCE:, 8:16] *= 1 + np.array([0.4, 0.35, 0.3, 0.25, 0.2, 0.18, 0.15, 0.1])
        assert blamed(records(compute)) == [("gpu_compute", set(range(8, 16)))]


class TestWhoIsAccused:
    @pytest.mark.parametrize(
        ("excess", "many"),
        [
            ([0.4, 0.01, 0.01], 1),
            ([0.4, 0.19, 0.01, 0.01], 1),  # the second is another fault
            ([0.4, 0.21, 0.01, 0.01], 2),
            ([0.5, 0.3, 0.2, 0.04, 0.01], 3),
            ([0.5, 0.3, 0.2, 0.1, 0.09, 0.01], 5),
        ],
    )
    def test_all_above_the_first_gap_are(self, excess, many):
        values = np.array(excess)
        accused = accused_of(values, values > 0.03)
        assert np.flatnonzero(accused).tolist() == list(range(many))

    def test_of_ranks_that_fade_out_into_healthy_ones_only_those_near_the_worst_are(self):
        fading = np.array([0.5, 0.3, 0.2, 0.12, 0.07, 0.04, 0.02, 0.015, 0.01])
        assert np.flatnonzero(accused_of(fading, fading > 0.03)).tolist() == [0, 1]
