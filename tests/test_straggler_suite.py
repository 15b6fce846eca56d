"""The simulator labels each fault by what the job would have done without that one."""

import numpy as np
import pytest
from benchmarks.straggler_suite import plan
from benchmarks.straggler_suite.__main__ import SUITES, jobs

from suite_jobs import fault, made


def test_two_faults_at_a_time_are_labelled_apart():
    one = fault("gpu_compute", "gpu", 1.5, first=100, last=200, slot=3)
    other = fault("data_loader", "rank", 0.4, first=150, last=220, slot=9)
    alone = made(one).labels["faults"][0]
    both = made(one, other).labels["faults"]
    assert [label["class"] for label in both] == ["gpu_compute", "data_loader"]
    assert [label["culprit_ranks"] for label in both] == [[3], [9]]
    assert len({label["fault_id"] for label in both}) == 2
    # While both last, the slow input hides behind nothing and lengthens the step as well, so that
    # the slow kernels are a smaller part of it.
    assert 0 < both[0]["lost_fraction"] < alone["lost_fraction"]
    assert both[1]["lost_fraction"] > 0


@pytest.mark.parametrize("seed", range(60, 76))
def test_faults_drawn_as_concurrent_overlap_or_begin_near_each_other(seed):
    drawn = plan.draw_two(seed, tuple(plan.SUBTYPES)[seed % len(plan.SUBTYPES)])
    first, second = drawn.faults
    assert first.kind != second.kind
    assert second.last - second.first >= 40
    assert second.first == 0 or first.first - 60 <= max(second.first, 70) <= first.last
    assert second.last <= drawn.steps


def test_a_healthy_job_stays_healthy_in_every_suite():
    assert {name: draw(7, None).faults for name, draw in SUITES.items()} == dict.fromkeys(
        SUITES, ()
    )


def test_large_jobs_have_more_ranks_than_the_usual_ones():
    (large,) = jobs(3, 1, "large")
    assert large.meta["world_size"] >= 256
    steps = len(np.unique(large.records["step"]))
    assert len(large.records) > 0.9 * large.meta["world_size"] * steps
