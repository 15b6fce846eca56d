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


def silent_from(step, slow=0.5, steps=200):
    """Return a job of whose ranks number 3 becomes slow and then no longer reports."""
    rows = records(
        Job(ranks=8, steps=steps, faults=(Fault("compute", (3,), slow, first_step=100),))
    )
    left = rows[(rows["rank"] != 3) | (rows["step"] < step)]
    return diagnose([JobRecords("job", left, 8, (), live=True)])[0]


@pytest.mark.parametrize(("step", "named"), [(104, ()), (112, (3,)), (125, (3,))])
def test_that_a_slow_rank_falls_silent_does_not_blame_the_exchange(step, named):
    """Its peers go on waiting for it; what they wait for is no longer seen."""
    said = silent_from(step)
    kinds = {one.kind for one in (said.cause, *said.others) if one}
    assert kinds == ({"gpu_compute"} if named else set())
    assert (said.cause.where.ranks if said.cause else ()) == named
    assert waited_for(said)[0].startswith("rank 3 is unobserved, peers wait for it")
    assert any(one.startswith("rank 3 has had no records for") for one in said.unobserved)


@pytest.mark.parametrize(("silent", "slow"), [((60, 200), 100), ((120, 200), 100)])
def test_a_slower_exchange_is_found_though_a_rank_fell_silent_before_or_after(silent, slow):
    simulated = made(
        fault("global_slowdown", "fabric", 3.0, first=slow, last=220),
        tensor=1,
        pipeline=1,
        checkpoint_period=0,
    )
    rows = simulated.records
    left = rows[(rows["rank"] != 3) | ~rows["step"].between(*silent)]
    job = JobRecords("job-a", left, 32, (), live=False, meta=simulated.meta)
    (said,) = diagnose([job])
    assert (said.cause.kind, said.cause.until_unix_seconds) == ("global_slowdown", None)


def test_a_slow_rank_that_is_silent_for_a_while_is_slow_again_afterwards():
    rows = records(Job(ranks=8, steps=260, faults=(Fault("compute", (3,), 0.5, first_step=100),)))
    left = rows[(rows["rank"] != 3) | ~rows["step"].between(130, 200)]
    (said,) = diagnose([JobRecords("job", left, 8, (), live=True)])
    assert (said.cause.kind, said.cause.where.ranks) == ("gpu_compute", (3,))
    assert {one.kind for one in said.others} <= {"gpu_compute"}
    assert not waited_for(said)


def test_a_rank_that_falls_silent_in_a_healthy_job_is_waited_for_by_nobody():
    said = silent_from(60, slow=0.0)
    assert not waited_for(said)
    assert any(one.startswith("rank 3 has had no records for") for one in said.unobserved)


def test_records_that_arrive_later_than_others_are_no_silence():
    said = silent_from(199, slow=0.0)
    assert not any("had no records" in one for one in said.unobserved)
