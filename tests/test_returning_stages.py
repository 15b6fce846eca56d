"""A stage that is heavy at times only: its layers stay where they are, so its node is slow."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.returning_stage import ReturningStages
from rankscope_analyzers.stragglers.view import Candidate
from straggler_views import past, shape, view
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


@pytest.mark.parametrize("usual", [(1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.6, 0.6)])
def test_stages_of_which_no_computing_was_measured_at_the_start_tell_no_rise(usual):
    arranged = shape(replicas=2, pipeline=3)
    heavy = Candidate("partition_imbalance", 0.2, (), 0, 1.0, 0.6)
    now = view(arranged, baseline=past(arranged, stage=np.array(usual)))
    stages = ReturningStages()
    for _ in range(3):
        assert stages.judge(now, [heavy]) == [heavy]


def test_a_stage_that_has_returned_is_remembered_once():
    arranged = shape(replicas=2, pipeline=3, per_node=2)
    heavy = Candidate("partition_imbalance", 0.2, (), 1, 1.0, 0.6)
    usual, risen = (view(arranged, compute=_of_stage(weight)) for weight in (0.6, 0.9))
    stages = ReturningStages()
    for _ in range(4):
        for seen, found_now in ((risen, [heavy]), (usual, [])):
            for _ in range(3):
                judged = stages.judge(seen, found_now)
    assert stages.judge(risen, [heavy])[0].ranks == (2, 3)
    assert judged == []
    assert stages._returned == (1,)


def _of_stage(weight):
    return np.array([0.6, weight, 0.6])[None, :, None, None]


@pytest.mark.parametrize(("between", "returned"), [(0.695, (1,)), (0.705, ())])
def test_a_stage_has_recovered_from_a_rise_by_half_if_it_keeps_less_than_a_third_of_it(
    between, returned
):
    arranged = shape(replicas=2, pipeline=3, per_node=2)
    heavy = Candidate("partition_imbalance", 0.2, (), 1, 1.0, 0.6)
    stages = ReturningStages()
    for weight, found_now in ((0.9, [heavy]), (between, []), (0.9, [heavy])):
        for _ in range(2):
            stages.judge(view(arranged, compute=_of_stage(weight)), found_now)
    assert stages._returned == returned
