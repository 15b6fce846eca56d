import numpy as np
import pytest

from rankscope_analyzers.findings.finding import Cost, Finding, Where
from rankscope_analyzers.steps import frames
from rankscope_analyzers.stragglers import verdict
from rankscope_analyzers.stragglers.naive import largest_step_time
from rankscope_analyzers.stragglers.view import PARTS
from simulated_jobs import Fault, Job, diagnosed, records


def judge(job, seed=0, **changes):
    return diagnosed(records(job, seed).assign(**changes)).verdict


def found(kind, gpu_hours, until=None, severity="page"):
    return Finding(
        kind=kind,
        layer="training",
        severity=severity,
        job_id="job",
        where=Where(nodes=("n",), ranks=(1,)),
        summary="",
        action="",
        evidence=(),
        cost=Cost(0.2, gpu_hours),
        confidence=0.6,
        runbook="",
        since_unix_seconds=0.0,
        until_unix_seconds=until,
    )


def decide(*findings):
    frame = frames.build("job", records(Job()))
    return verdict.judge(frame, findings, frozenset(PARTS)).cause.kind


def test_of_two_faults_that_go_on_the_costlier_one_is_the_verdict():
    assert decide(found("data_loader", 1.0), found("gpu_compute", 1.5)) == "gpu_compute"


def test_what_wakes_somebody_comes_before_what_costs_more():
    ticket = found("data_loader", 9.0, severity="ticket")
    assert decide(ticket, found("gpu_compute", 1.5)) == "gpu_compute"


def test_a_fault_that_goes_on_beats_a_costlier_one_that_is_over():
    over = found("data_loader", 9.0, until=5.0)
    assert decide(over, found("gpu_compute", 1.0)) == "gpu_compute"


def test_a_fault_that_is_over_is_still_the_verdict_when_nothing_else_goes_on():
    assert decide(found("data_loader", 1.0, until=5.0)) == "data_loader"


@pytest.mark.parametrize(("kind", "cause"), [("compute", "gpu_compute"), ("data", "data_loader")])
def test_both_rank_faults_reach_the_verdict(kind, cause):
    said = judge(Job(faults=(Fault(kind, (3,), 0.4),)))
    assert said.cause.kind == cause
    assert said.cause.where.ranks == (3,)
    assert said.confidence == said.cause.confidence


def test_a_healthy_job_has_no_cause_and_full_confidence():
    said = judge(Job())
    assert said.cause is None
    assert said.confidence == pytest.approx(1.0, abs=0.02)
    assert said.unobserved == ()


def test_a_few_steps_carry_no_verdict():
    said = judge(Job(steps=10, faults=(Fault("compute", (3,), 2.0),)))
    assert said.cause is None
    assert said.confidence == 0.0
    assert "only 8 usable steps were recorded, a verdict needs 12" in said.unobserved


def test_a_single_rank_has_nobody_to_be_compared_with():
    said = judge(Job(ranks=1))
    assert said.confidence == 0.0
    assert "one rank only: there is no rank to compare it with" in said.unobserved


def test_what_was_not_measured_is_said_and_lowers_the_confidence():
    said = judge(Job(), compute_seconds=np.nan, sync_seconds=np.nan)
    # Of seven classes slow input of some ranks, or of all, and waits for CPUs are left to be seen.
    assert said.confidence == pytest.approx(3 / 7)
    undetectable = "gpu_compute, network_link, global_slowdown, partition_imbalance cannot be"
    assert any(sentence.startswith(undetectable) for sentence in said.unobserved)
    assert "compute time is not measured on 8 of 8 ranks" in said.unobserved
    assert said.ranks[0].compute is None


def test_ranks_without_records_are_named_and_lower_the_confidence():
    said = diagnosed(records(Job()), world_size=16).verdict
    assert said.confidence == pytest.approx(0.5, abs=0.01)
    assert said.unobserved[0].startswith("no records of 8 of 16 ranks: 8-15")


def test_the_naive_answer_is_the_longest_step_and_its_spread():
    rows = records(Job(ranks=4))
    rows.loc[rows["rank"] == 2, "step_seconds"] *= 1.02
    answer = largest_step_time(frames.build("job", rows))
    assert answer.rank == 2
    assert answer.spread == pytest.approx(0.02)
