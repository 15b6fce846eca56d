"""Pipelines under wall timing, where only the end of each stage is seen; and unequal sequences."""

import pytest

from suite_jobs import fault, found, made

STAGES = {
    2: {"world": 32, "tensor": 4, "pipeline": 2},
    4: {"world": 32, "tensor": 2, "pipeline": 4},
}


def first(incidents):
    """Return the class, the stage and the ranks of the first incident."""
    return [(one.kind, one.stage, one.ranks) for one in incidents][:1]


@pytest.mark.parametrize("begins", [0, 80])
@pytest.mark.parametrize(("stages", "heavy"), [(2, 0), (2, 1), (4, 0), (4, 2), (4, 3)])
def test_a_heavy_stage_is_named_wherever_it_is_and_whenever_it_became_heavy(stages, heavy, begins):
    simulated = made(
        fault("partition_imbalance", "stage", 1.3, first=begins, stage=heavy, last=220),
        timing="wall", **STAGES[stages],
    )  # fmt: skip
    assert first(found(simulated)) == [("partition_imbalance", heavy, ())]


@pytest.mark.parametrize("stages", STAGES)
def test_all_stages_that_become_slower_together_are_no_heavy_stage(stages):
    slower = fault("global_slowdown", "compute", 1.3, last=220)
    simulated = made(slower, timing="wall", **STAGES[stages])
    assert first(found(simulated)) == [("global_slowdown", -1, ())]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stages", STAGES)
def test_healthy_stages_that_differ_by_a_few_per_cent_are_not_heavy(stages, seed):
    assert found(made(timing="wall", seed=seed, **STAGES[stages])) == ()


@pytest.mark.parametrize(
    ("layout", "strength", "seed"),
    [((1, 4), 0.12, 4), ((1, 4), 0.2, 5), ((2, 2), 0.12, 7), ((2, 2), 0.2, 1), ((2, 2), 0.2, 2)],
)
def test_sequences_that_become_unequal_are_no_stalls(layout, strength, seed):
    """Unequal work makes some replicas faster, and a stall makes none faster."""
    uneven = fault("partition_imbalance", "sequence_length", strength, last=220)
    tensor, pipeline = layout
    simulated = made(
        uneven, timing="wall", seed=seed, replica_length_noise=0.025, world=16, tensor=tensor,
        pipeline=pipeline,
    )  # fmt: skip
    assert {one.kind for one in found(simulated)} == {"partition_imbalance"}


def test_sequences_that_become_equal_again_leave_no_slowdown_behind():
    uneven = fault("partition_imbalance", "sequence_length", 0.2, first=0, last=130)
    simulated = made(uneven, timing="wall", world=64, tensor=8, pipeline=2)
    assert [one.kind for one in found(simulated)] == ["partition_imbalance"]


@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_a_node_that_is_half_of_a_job_is_named_though_a_rank_of_the_other_half_is_silent(timing):
    slow = fault("data_loader", "node", 0.4, slot=2, last=220)
    simulated = made(slow, timing=timing, world=16, tensor=1, pipeline=1, dark=9)
    (said,) = found(simulated)
    assert (said.kind, set(said.ranks)) == ("data_loader", set(range(8)))
