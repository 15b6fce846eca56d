"""A shorter rest is a late exit from the exchange only where a barrier ends the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from free_running_jobs import computing, findings, records
from rankscope_analyzers.stragglers import step_ends
from straggler_views import ranks, shape, view

STEPS, WORLD, SHORTER = 300, 8, 0.003


def resting(shorter=(), by=0.0, *, world=WORLD, seed=0):
    """Return (steps, ranks) of rest that varies, and that is shorter or longer on some ranks."""
    random = np.random.default_rng(seed)
    rest = 0.02 * (1 + 0.05 * np.abs(random.standard_normal((STEPS, world))))
    rest[:, list(shorter)] += by
    return rest


def exchanging(slower=1.0, seed=1):
    random = np.random.default_rng(seed)
    exchange = 0.2 * (1 + 0.03 * np.abs(random.standard_normal((STEPS, 1))))
    exchange[120:] *= slower
    return exchange


class TestWithoutABarrier:
    @pytest.mark.parametrize("per_node", [1, 4, WORLD])
    @pytest.mark.parametrize("timing", ["wall", "kernel"])
    def test_a_rank_whose_rest_is_always_shorter_is_at_no_slow_link(self, per_node, timing):
        rows = records(
            computing(STEPS, WORLD),
            rest=resting([7], -SHORTER),
            exchange=exchanging(),
            per_node=per_node,
            timing=timing,
        )
        assert findings(rows) == ()

    @pytest.mark.parametrize("per_node", [1, 4, WORLD])
    def test_ranks_of_one_node_whose_rest_is_shorter_are_at_none(self, per_node):
        rest = resting(range(4, 8), -SHORTER)
        rows = records(computing(STEPS, WORLD), rest=rest, exchange=exchanging(), per_node=per_node)
        assert findings(rows) == ()

    @pytest.mark.parametrize("world", [4, 5, 6])
    def test_a_slow_fabric_is_no_link_although_one_rank_writes_logs_after_the_exchange(self, world):
        rows = records(
            computing(STEPS, world),
            rest=resting([0], 0.005, world=world),
            exchange=exchanging(slower=3),
            per_node=4,
        )
        found = findings(rows)
        assert [one.kind for one in found] == ["global_slowdown"]
        assert found[0].where.ranks == ()


def leaving(*, barrier, clocks, late=0.005, flat=None):
    """Return a window in which ranks leave and rest as long as it varies, rank 5 last."""
    arranged = flat or shape(replicas=16)
    random = np.random.default_rng(3)
    exits = 1e-3 * random.standard_normal((40, *arranged.sizes)) + ranks({5: late}, world=16)
    rests = np.zeros_like(exits) if barrier else 1e-3 * random.standard_normal(exits.shape)
    rest = rests - exits if barrier else rests
    ends = (exits + rest)[-17:]
    made = view(
        arranged=arranged,
        residual=rest[-16:],
        # A step lasts from the end of the one before to its own.
        waits=np.diff(ends, axis=0) - rest[-16:],
        residual_long=rest,
    )
    return replace(made, exit_lateness_long=exits) if clocks else made


class TestABarrier:
    @pytest.mark.parametrize("clocks", [True, False])
    @pytest.mark.parametrize("barrier", [True, False])
    def test_shows_in_ends_by_the_clock_and_in_durations(self, barrier, clocks):
        assert step_ends.are_together(leaving(barrier=barrier, clocks=clocks)) is barrier

    def test_is_not_assumed_of_means_over_many_steps(self):
        assert not step_ends.are_together(replace(leaving(barrier=True, clocks=False), means=True))

    def test_is_not_assumed_where_durations_are_not_measured(self):
        made = leaving(barrier=True, clocks=False)
        unknown = replace(made, compute=np.full_like(made.compute, np.nan))
        assert not step_ends.are_together(unknown)
