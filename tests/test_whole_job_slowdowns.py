"""Conclusions about groups and the whole job, which need the job's own beginning."""

import numpy as np
import pytest

from simulated_jobs import Fault, Job, findings, records

EVERYBODY = tuple(range(8))


def found(job, seed=0):
    return findings(records(job, seed))


def test_all_ranks_computing_longer_is_a_global_slowdown():
    (said,) = found(Job(faults=(Fault("compute", EVERYBODY, 0.4, first_step=100),)))
    assert (said.kind, said.where.ranks) == ("global_slowdown", ())
    assert said.cost.lost_fraction == pytest.approx(0.4 / 1.59, abs=0.02)
    assert said.summary.startswith("all ranks spend 1.4")


def test_a_slow_fabric_is_a_global_slowdown_of_the_exchange():
    (said,) = found(Job(faults=(Fault("transfer", EVERYBODY, 0.4, first_step=100),)))
    assert said.kind == "global_slowdown"
    assert "exchanging gradients" in said.summary


def test_one_slow_group_of_four_is_a_network_link_of_one_of_its_ranks():
    slow = Fault("transfer", (1,), 0.4, first_step=100)
    (said,) = found(Job(ranks=32, groups=4, faults=(slow,)))
    assert said.kind == "network_link"
    assert {rank % 4 for rank in said.where.ranks} == {1}
    (all_groups,) = found(Job(ranks=32, groups=4, faults=(Fault("transfer", EVERYBODY, 0.4, 100),)))
    assert all_groups.confidence > said.confidence  # which of the eight it is was not seen


def test_the_rank_that_leaves_the_slow_exchange_last_is_named():
    rows = records(Job(faults=(Fault("transfer", EVERYBODY, 0.4, first_step=100),)))
    late = (rows["rank"] == 5) & (rows["step"] >= 100)
    rows["step_seconds"] += 0.05  # the barrier that all leave together
    rows.loc[late, "sync_seconds"] += 0.03
    (said,) = findings(rows)
    assert said.kind == "network_link"
    assert said.where.ranks[0] == 5


def test_a_late_rank_does_not_look_like_a_slow_exchange():
    (said,) = found(Job(faults=(Fault("compute", (2,), 0.6, first_step=100),)))
    assert said.kind == "gpu_compute"


def test_a_slowdown_of_a_few_seconds_is_not_reported():
    fault = Fault("compute", EVERYBODY, 0.02, first_step=400, last_step=600)
    assert not found(Job(steps=1500, compute=0.03, data=0.001, transfer=0.004, faults=(fault,)))


def test_a_trace_without_a_healthy_beginning_has_nothing_to_compare_with():
    assert not found(Job(steps=30, faults=(Fault("compute", EVERYBODY, 0.4, first_step=20),)))


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_job_is_not_slow(seed):
    assert not found(Job(steps=300), seed)


@pytest.mark.parametrize("seed", range(5))
def test_compute_that_changes_by_a_third_from_step_to_step_accuses_nobody(seed):
    said = found(Job(noise=0.3, steps=300), seed)
    assert {one.kind for one in said} <= {"partition_imbalance"}
    assert not any(one.where.ranks for one in said)


def test_unmeasured_sync_gives_no_finding_about_the_exchange():
    rows = records(Job(faults=(Fault("transfer", EVERYBODY, 0.4, first_step=100),)))
    assert not findings(rows.assign(sync_seconds=np.nan))


def test_with_step_times_alone_it_is_said_that_steps_take_longer():
    rows = records(Job(faults=(Fault("compute", EVERYBODY, 0.4, first_step=100),)))
    unknown = ["data_seconds", "compute_seconds", "sync_seconds", "cpu_wait_seconds"]
    (said,) = findings(rows.drop(columns=unknown))
    assert (said.kind, said.where.ranks) == ("global_slowdown", ())
    assert "what they are made of is not measured" in said.summary
