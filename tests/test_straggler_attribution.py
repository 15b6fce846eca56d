"""Faults without a culprit, where chance or a blind spot could make somebody look guilty."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.special_steps import CheckpointHistory
from suite_jobs import fault, found, incidents, made

SEEDS = range(6)
ANY_RANK = fault("host_transient", "garbage_collection", 0.5, duty=0.5)
FABRIC = fault("global_slowdown", "fabric", 2.5)


def _blamed(seeds, *faults, **layout):
    """Return the ranks that are named in jobs that differ in their noise."""
    return [said.ranks for seed in seeds for said in found(made(*faults, seed=seed, **layout))]


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 2), (1, 4)])
def test_stalls_of_replicas_that_span_all_nodes_name_no_node(tensor, pipeline):
    blamed = _blamed(SEEDS, ANY_RANK, world=16, tensor=tensor, pipeline=pipeline, timing="wall")
    assert blamed
    assert set(blamed) == {()}


def test_stalls_of_two_replicas_name_none_of_them_by_chance():
    blamed = _blamed(range(12), ANY_RANK, world=8, timing="wall")
    assert blamed
    assert set(blamed) == {()}


def test_a_dark_rank_makes_no_second_node():
    blamed = _blamed(SEEDS, ANY_RANK, world=8, tensor=1, pipeline=1, dark=1)
    assert blamed
    assert set(blamed) == {()}


def test_the_one_rank_that_stalls_is_named_where_a_node_holds_the_whole_job():
    simulated = made(world=8, tensor=1, pipeline=1, missing=0.0)
    rows = simulated.records
    stalled = (rows["step"] % 3 == 0) & (rows["step"] > 80)
    moved = rows.assign(
        step_seconds=rows["step_seconds"] + 0.6 * stalled,
        sync_seconds=rows["sync_seconds"] + 0.6 * (stalled & (rows["rank"] != 3)),
    )
    (said,) = incidents(simulated.meta, moved)
    assert (said.kind, said.ranks) == ("host_transient", (3,))


def test_a_noisy_host_is_named_with_the_nodes_that_wall_timing_cannot_tell_from_it():
    noisy = fault("host_transient", "noisy_host", 0.5, duty=0.3)
    simulated = made(noisy, world=64, tensor=8, pipeline=2, timing="wall")
    (label,) = simulated.labels["faults"]
    (said,) = found(simulated)
    assert set(said.ranks) == set(label["accept_ranks"])
    assert len(set(said.nodes)) == 2
    (alone,) = found(made(noisy, world=64, tensor=8, pipeline=1, timing="wall"))
    assert len(set(alone.nodes)) == 1
    assert alone.confidence > said.confidence


@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_in_groups_of_two_a_slow_fabric_has_no_slow_end(timing):
    jobs = [made(FABRIC, seed=seed, world=8, timing=timing) for seed in SEEDS]
    said = [incident for job in jobs for incident in found(job)]
    assert {incident.kind for incident in said} == {"global_slowdown"}
    assert {incident.ranks for incident in said} == {()}


def test_a_lag_that_is_certain_but_tiny_beside_the_rise_is_not_the_slow_hop():
    """The last member of a group of stalling hosts leaves late, however slow the fabric is."""
    simulated = made(FABRIC, world=32, tensor=1, pipeline=1, seed=3, missing=0.0)
    rows = simulated.records
    later = np.where(rows["rank"] == 9, 0.004 * rows["sync_seconds"], 0.0)
    moved = rows.assign(sync_seconds=rows["sync_seconds"] + later)
    (said,) = incidents(simulated.meta, moved)
    assert (said.kind, said.ranks) == ("global_slowdown", ())


def test_what_one_of_two_nodes_says_alone_is_no_checkpoint():
    nodes = np.repeat([0, 1], 4).reshape(1, 8, 1)
    shape = Shape(1, 8, 1, 1, False, nodes)
    silent = np.where(nodes == 0, np.nan, 9.0)
    history = CheckpointHistory()
    for step in (20, 40, 60):
        assert history.add(step, 2.0 + 0.1 * nodes, shape, 1.0) == (True, None)
    for step in (80, 100, 120):
        assert history.add(step, silent, shape, 1.0) == (False, None)


@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_a_stage_whose_node_is_silent_is_not_compared_with_its_past(timing):
    layout = {"world": 16, "timing": timing, "step_length_noise": 0.06, "evaluation_period": 50}
    jobs = [made(seed=seed, silent_node=0, evaluation_seconds=6.0, **layout) for seed in SEEDS]
    assert [found(job) for job in jobs] == [()] * len(SEEDS)
