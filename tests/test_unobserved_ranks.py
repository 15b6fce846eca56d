"""A rank that nobody sees is never convicted, and named where its peers wait."""

import pytest

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose
from simulated_jobs import Fault, Job, records
from suite_jobs import fault, made


def verdict_of(simulated):
    job = JobRecords("job-a", simulated.records, 32, (), live=False, meta=simulated.meta)
    (said,) = diagnose([job])
    return said


def waited_for(said):
    return [sentence for sentence in said.unobserved if "peers wait for" in sentence]


@pytest.mark.parametrize("layout", [{"tensor": 1, "pipeline": 1}, {"tensor": 2, "pipeline": 2}])
def test_a_dark_rank_that_becomes_slow_is_named_but_not_convicted(layout):
    slow = fault("gpu_compute", "gpu", 1.6, first=100, last=220)
    said = verdict_of(made(slow, dark=13, checkpoint_period=0, **layout))
    (sentence,) = waited_for(said)
    assert sentence.startswith("rank 13 is unobserved, peers wait for it")
    assert said.cause is None or 13 not in said.cause.where.ranks


def test_a_dark_rank_of_a_healthy_job_is_not_named():
    said = verdict_of(made(dark=13))
    assert not waited_for(said)
    assert "no records of 1 of 32 ranks: 13" in said.unobserved


def test_a_dark_rank_is_not_named_where_an_observed_one_is_slow():
    said = verdict_of(made(fault("gpu_compute", "gpu", 1.6, slot=20, last=220), dark=13))
    assert 20 in said.cause.where.ranks
    assert not waited_for(said)


def test_running_jobs_name_theirs_too():
    rows = records(Job(ranks=8, steps=200, faults=(Fault("compute", (3,), 0.5, first_step=100),)))
    job = JobRecords("job", rows[rows["rank"] != 3], 8, (), live=True)
    (said,) = diagnose([job])
    assert waited_for(said)[0].startswith("rank 3 is unobserved, peers wait for it")
    assert said.cause is None or not said.cause.where.ranks
