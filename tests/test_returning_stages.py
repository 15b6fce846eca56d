"""A stage that is heavy at times only: its layers stay where they are, so its node is slow."""

import pytest

from suite_jobs import fault, found, made

ONE_NODE = {"world": 32, "tensor": 2, "pipeline": 4}
FOUR_NODES = {"world": 64, "tensor": 4, "pipeline": 2}


def at_times(stage, strength=1.4):
    """Return the faults of a stage that is heavy, as usual, and heavy again."""
    return tuple(
        fault("partition_imbalance", "stage", strength, first=first, last=last, stage=stage)
        for first, last in ((80, 110), (140, 170), (190, 220))
    )


def last(simulated):
    """Return the class, the stage and the ranks of the newest incident."""
    newest = found(simulated)[-1]
    return newest.kind, newest.stage, set(newest.ranks)


@pytest.mark.parametrize("timing", ["kernel", "wall"])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_stage_that_is_heavy_again_is_a_slow_node_if_it_fills_one(stage, timing):
    simulated = made(*at_times(stage), timing=timing, **ONE_NODE)
    assert last(simulated) == ("gpu_compute", -1, set(range(8 * stage, 8 * stage + 8)))


def test_a_node_that_slows_down_in_bursts_is_named_though_it_holds_a_stage():
    bursts = fault("gpu_compute", "intermittent", 1.5, slot=18, last=220, duty=0.5)
    assert last(made(bursts, **ONE_NODE)) == ("gpu_compute", -1, set(range(16, 24)))


def test_a_stage_of_several_nodes_stays_a_stage_however_often_it_is_heavy():
    assert last(made(*at_times(1), **FOUR_NODES)) == ("partition_imbalance", 1, set())


def test_a_stage_that_stays_heavy_or_becomes_lighter_once_is_no_node():
    begin, _, end = at_times(1)
    heavy = fault("partition_imbalance", "stage", 1.4, stage=1, last=220)
    for faults in ((heavy,), (begin,), (end,)):
        assert {one.kind for one in found(made(*faults, **ONE_NODE))} == {"partition_imbalance"}
