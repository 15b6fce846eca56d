"""What a person reads about an incident of a trace."""

import pytest

from rankscope_analyzers import incident_findings
from rankscope_analyzers.diagnosis import diagnose
from rankscope_analyzers.sources import JobRecords
from suite_jobs import fault, made


def cause_of(*faults, **changes):
    simulated = made(*faults, **changes)
    job = JobRecords("job-a", simulated.records, 32, (), live=False, meta=simulated.meta)
    (verdict,) = diagnose([job])
    return verdict.cause


def test_a_slow_gpu_is_named_with_its_ratio_and_node():
    cause = cause_of(fault("gpu_compute", "gpu", 1.5, last=220))
    assert cause.summary.startswith("rank 13 (node node-00001) needs 1.")
    assert cause.evidence[0].unit == "ratio"
    assert cause.until_unix_seconds is None


def test_a_heavy_stage_comes_with_the_share_of_layers_to_move():
    cause = cause_of(fault("partition_imbalance", "stage", 1.5, stage=1, last=220))
    # 1.5 and 1.0 are equal at 1.25: a sixth of the heavy stage moves.
    assert "Move 1" in cause.action
    assert "of stage 1's layers to the other 1 stages" in cause.action
    assert cause.subject.ranks == ()


def test_unequal_sequences_come_with_their_spread():
    cause = cause_of(fault("partition_imbalance", "sequence_length", 0.2, last=220))
    assert "standard deviation within a step" in cause.summary
    assert "Deal sequences to replicas" in cause.action


def test_the_cost_grows_with_the_time_that_a_fault_lasted():
    short = cause_of(fault("gpu_compute", "gpu", 1.5, first=60, last=100))
    long = cause_of(fault("gpu_compute", "gpu", 1.5, first=60, last=200))
    assert long.cost.gpu_hours > 2 * short.cost.gpu_hours


@pytest.mark.parametrize("kind", incident_findings.WORDINGS)
def test_every_class_has_a_runbook(kind, pytestconfig):
    assert (pytestconfig.rootpath / incident_findings.WORDINGS[kind].runbook).is_file()
