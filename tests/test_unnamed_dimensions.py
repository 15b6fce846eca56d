"""Jobs with dimensions that no column of a record names: contexts, experts, hybrid shards."""

import pytest

from simulated_jobs import Fault, Job, diagnosed, records

RANKS = 16


def arranged(name, *faults):
    """Return records of 16 ranks whose groups leave out one dimension, by its name."""
    rows = records(Job(ranks=RANKS, steps=160, faults=faults))
    rank = rows["rank"]
    groups = {
        "context": {"tp_group": rank // 4, "dp_group": rank % 2},
        "hybrid shard": {"tp_group": rank, "dp_group": rank // 4},
        "expert": {"tp_group": rank // 2, "dp_group": rank % 4},
    }
    return rows.assign(pp_stage=0, **groups[name])


DIMENSIONS = pytest.mark.parametrize("name", ["context", "hybrid shard", "expert"])


@DIMENSIONS
@pytest.mark.parametrize("slow", [0, 11])
def test_a_slow_rank_is_named_whatever_dimension_is_not(name, slow):
    verdict = diagnosed(arranged(name, Fault("compute", (slow,), 0.5, first_step=60))).verdict
    assert (verdict.cause.kind, verdict.cause.where.ranks) == ("gpu_compute", (slow,))


@DIMENSIONS
def test_a_healthy_job_is_accused_of_nothing_whatever_dimension_is_not_named(name):
    assert diagnosed(arranged(name)).verdict.cause is None
