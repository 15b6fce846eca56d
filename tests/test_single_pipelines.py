"""Jobs that are one pipeline of one rank for each stage: there are no peers to compare with."""

import numpy as np
import pandas as pd
import pytest

from simulated_jobs import START_UNIX_SECONDS, findings

STAGES = (0.180, 0.170, 0.176, 0.172)
"""Seconds that stages compute: whole layers make no better split."""


def pipeline(slow=None, factor=1.4, since=100, steps=250, stages=STAGES, microbatches=4, timing=""):
    """Return the records of a pipeline whose ranks wait in the exchange of messages.

    Args:
        slow: stage that becomes slower, None for none.
        factor: by how much.
        since: step from which on it is slow.
        steps: their number.
        stages: seconds that each computes in a step.
        microbatches: into which a step is divided.
        timing: source of the times.
    """
    random, now, rows = np.random.default_rng(7), START_UNIX_SECONDS, []
    for step in range(steps):
        compute = np.array(stages) * (1 + 0.01 * np.abs(random.standard_normal(len(stages))))
        if slow is not None and step >= since:
            compute[slow] *= factor
        # Each stage has a part of the batch after another; the longest one sets the pace.
        lasted = float(compute.max() + (compute.sum() - compute.max()) / microbatches)
        # Stages end one after the other, the first one last: that is no late exit of anything.
        ends = now + lasted - 0.006 * np.arange(len(stages))
        ends += 0.0035 * random.standard_normal(len(stages))
        rows += [
            {
                "step": step,
                "rank": rank,
                "node": "n1",
                "gpu": rank,
                "t_start_unix_seconds": ends[rank] - lasted,
                "step_seconds": lasted,
                "data_seconds": 0.0,
                "compute_seconds": compute[rank],
                "sync_seconds": lasted - compute[rank] - 0.001,
                "other_seconds": 0.001,
                "microbatches": microbatches,
                "dp_group": rank,
                "tp_group": rank,
                "pp_stage": rank,
                "timing_source": timing or "wall",
            }
            for rank in range(len(stages))
        ]
        now += lasted
    return pd.DataFrame(rows)


@pytest.mark.parametrize("timing", ["wall", "kernel"])
@pytest.mark.parametrize("slow", range(len(STAGES)))
def test_the_rank_of_the_stage_that_becomes_slower_is_named(slow, timing):
    (found,) = findings(pipeline(slow, timing=timing))
    assert (found.kind, found.where.ranks) == ("gpu_compute", (slow,))
    assert "as long as before" in found.summary
    assert found.summary.endswith(", and the other stages do not")


def test_stages_that_are_not_known_to_be_some_have_no_slow_link():
    """Messages that programs send themselves do not tell: ranks look like replicas then."""
    rows = pipeline(stages=(0.175,) * 4)
    rows = rows.assign(dp_group=0, tp_group=rows["rank"], pp_stage=0)
    assert findings(rows) == []


@pytest.mark.parametrize("timing", ["wall", "kernel"])
def test_nobody_is_named_if_no_stage_changes(timing):
    assert findings(pipeline(timing=timing)) == []


def test_stages_that_all_become_slower_are_slower_work_of_all():
    rows = pipeline()
    later = rows["step"] >= 100
    for name in ("compute_seconds", "sync_seconds", "step_seconds"):
        rows.loc[later, name] *= 1.4
    (found,) = findings(rows)
    assert (found.kind, found.where.ranks) == ("global_slowdown", ())


def test_a_stage_that_is_heavy_from_the_start_is_an_uneven_split():
    (found,) = findings(pipeline(stages=(0.16, 0.30, 0.17, 0.16)))
    assert (found.kind, found.where.stage) == ("partition_imbalance", 1)
