"""Jobs whose ranks wait for CPUs most of the time."""

import numpy as np
import pytest

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis
from suite_jobs import fault, made

SLOW = fault("gpu_compute", "gpu", 1.5, first=60, last=220)


def waiting(share, *faults, ranks=slice(None)):
    """Return the verdict on a job of which some ranks wait for CPUs for a share of their time."""
    job = made(*faults, tensor=1, pipeline=1, timing="wall")
    records = job.records
    random = np.random.default_rng(3)
    worked = records["compute_seconds"] + records["data_seconds"]
    stopped = worked * share / (1.0 - share) * random.uniform(0.9, 1.1, len(records))
    there = records["rank"].isin(range(32)[ranks])
    stopped = stopped.where(there, 0.0)
    longest = stopped.groupby(records["step"]).transform("max")
    records = records.assign(
        timing_source="wall",
        cpu_wait_seconds=stopped,
        sync_seconds=records["sync_seconds"] + longest - stopped,
        step_seconds=records["step_seconds"] + longest,
        other_seconds=0.0,
    )
    return diagnosis(JobRecords("job", records, None, (), live=True)).verdict


def said(verdict):
    return [one for one in verdict.asides if "wait for a CPU" in one]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_of_a_job_that_waits_no_more_than_on_shared_cores_nothing_is_said_of_waits(share):
    assert said(waiting(share)) == []


def test_a_job_that_waits_for_cpus_most_of_the_time_is_told_and_no_rank_is_blamed_for_sure():
    healthy, slow, sure = waiting(0.8), waiting(0.8, SLOW), waiting(0.0, SLOW)
    (note,) = said(healthy)
    assert "for 80% of the time in which they could run" in note
    assert "CPU limits of all pods" in note
    assert healthy.cause is None
    assert healthy.confidence == pytest.approx(0.2 * waiting(0.0).confidence, rel=0.05)
    assert sure.cause.confidence > 0.4
    assert slow.confidence < 0.25
    assert slow.cause is None or slow.confidence == slow.cause.confidence


def test_one_rank_that_starves_speaks_for_no_other():
    verdict = waiting(0.8, ranks=slice(5, 6))
    assert said(verdict) == []
    assert (verdict.cause.kind, verdict.cause.where.ranks) == ("host_transient", (5,))
    assert verdict.confidence > 0.5
