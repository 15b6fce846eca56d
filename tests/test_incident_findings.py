"""What a person reads about an incident of a trace."""

import re
from typing import get_args

import pytest

from rankscope_analyzers.findings.advice import ADVICE
from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers import incident_texts
from rankscope_analyzers.stragglers.diagnosis import diagnose
from suite_jobs import fault, made

PAGE_COST = 0.10


def cause_of(*merge_incidents, **changes):
    simulated = made(*merge_incidents, **changes)
    job = JobRecords("job-a", simulated.records, 32, (), live=False, meta=simulated.meta)
    (verdict,) = diagnose([job])
    return verdict.cause


def test_a_slow_gpu_is_named_with_its_ratio_and_node():
    cause = cause_of(fault("gpu_compute", "gpu", 1.5, last=220))
    assert cause.summary.startswith("rank 13 (node node-00001, GPU 5) computes 1.")
    assert cause.evidence[0].observed == pytest.approx(1.5 * cause.evidence[0].expected, rel=0.05)
    assert [place.gpu for place in cause.where.culprits] == ["5"]
    assert cause.until_unix_seconds is None


@pytest.mark.parametrize("measured", [True, False])
def test_slow_compute_may_be_input_where_none_is_measured(measured):
    simulated = made(fault("gpu_compute", "gpu", 1.5, last=220))
    records = simulated.records if measured else simulated.records.assign(data_seconds=float("nan"))
    job = JobRecords("job-a", records, 32, (), live=False, meta=simulated.meta)
    (verdict,) = diagnose([job])
    assert verdict.cause.where.ranks[0] == 13
    assert ("rankscope_probe.batches" in verdict.cause.action) is not measured
    assert verdict.cause.action.endswith(ADVICE["gpu_compute"].action)


@pytest.mark.parametrize(
    ("kind", "subtype", "strength", "verb"),
    [("gpu_compute", "node", 1.5, "compute"), ("data_loader", "node", 0.5, "wait")],
)
def test_several_ranks_compute_or_wait_as_a_plural(kind, subtype, strength, verb):
    cause = cause_of(fault(kind, subtype, strength, last=220))
    assert re.match(rf"rank \d+ \(.*\) and 7 more ranks {verb} \d", cause.summary)
    assert cause.summary.count("their peers") == 1


def test_a_gpu_is_unknown_once_its_rank_runs_elsewhere():
    simulated = made(fault("gpu_compute", "gpu", 1.5, last=110), restart=120, shrinks=True)
    records = simulated.records
    later = records[(records["rank"] == 13) & (records["t_start_unix_seconds"] > 1.7600004e9)]
    job = JobRecords("job-a", records, 32, (), live=False, meta=simulated.meta)
    (verdict,) = diagnose([job])
    there = set(verdict.cause.where.nodes) == set(later["node"])
    (culprit,) = verdict.cause.where.culprits
    assert culprit.gpu == ("5" if there else "")


def test_a_heavy_stage_comes_with_what_every_stage_gives_or_takes():
    cause = cause_of(fault("partition_imbalance", "stage", 1.5, stage=1, last=220))
    # 1.5 and 1.0 are equal at 1.25: the heavy stage gives a sixth, the other takes a quarter.
    taken, given = map(int, re.findall(r"stage [01] (\d+)% of its own", cause.action))
    assert abs(taken - 25) <= 5
    assert abs(given - 17) <= 3
    assert "to stage 0" in cause.action
    assert "from stage 1" in cause.action
    stages = [evidence for evidence in cause.evidence if evidence.meaning.startswith("stage ")]
    assert [evidence.expected for evidence in stages] == [stages[0].expected] * 2
    assert stages[1].observed / stages[0].observed == pytest.approx(1.5, rel=0.05)
    assert cause.where.ranks == ()


def test_unequal_sequences_come_with_their_spread():
    cause = cause_of(fault("partition_imbalance", "sequence_length", 0.2, last=220))
    assert "standard deviation within a step" in cause.summary
    assert "Deal sequences to replicas" in cause.action


def test_the_cost_in_gpu_hours_is_what_all_ranks_lost_together():
    slow = made(fault("gpu_compute", "gpu", 1.5, first=60, last=200))
    (label,) = slow.labels["faults"]
    cause = cause_of(fault("gpu_compute", "gpu", 1.5, first=60, last=200))
    assert cause.cost.gpu_hours == pytest.approx(label["gpu_hours_lost"], rel=0.25)


def test_the_cost_grows_with_the_time_that_a_fault_lasted():
    short = cause_of(fault("gpu_compute", "gpu", 1.5, first=60, last=100))
    long = cause_of(fault("gpu_compute", "gpu", 1.5, first=60, last=200))
    assert long.cost.gpu_hours > 2 * short.cost.gpu_hours


def test_every_class_has_a_sentence_and_advice():
    assert {kind for kind, _ in incident_texts.TEMPLATES} == set(get_args(FaultClass))
    assert set(get_args(FaultClass)) <= set(ADVICE)


def test_what_takes_a_tenth_of_every_step_pages_and_less_is_a_ticket():
    large, small = (
        cause_of(fault("gpu_compute", "gpu", strength, last=220)) for strength in (1.5, 1.2)
    )
    assert (large.severity, small.severity) == ("page", "ticket")
    assert small.cost.lost_fraction < PAGE_COST < large.cost.lost_fraction
