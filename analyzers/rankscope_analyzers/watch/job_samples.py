"""The series of one job of the cluster, at most 25 of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rankscope_agent.contract.metrics import cluster_jobs as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.workloads.jobs import Job
from rankscope_analyzers.workloads.state import REPLICA_STATES

MOST_REPLICAS = 8
MOST_REASONS = 4


def of_job(job: Job) -> Iterator[Sample]:
    """Yield the series of a job."""
    job_id = inert(job.job_id)
    yield metrics.JOB_WORKLOAD_INFO.sample(
        1,
        job_id=job_id,
        kind=job.top.kind,
        job_class=inert(job.top.job_class),
        queue=inert(job.queue),
    )
    yield metrics.JOB_STATE.sample(1, job_id=job_id, state=job.state)
    yield from islice(_replicas(job, job_id), MOST_REPLICAS)
    if job.top.progress.elastic is not None:
        for bound, value in zip(("min", "max"), job.top.progress.elastic, strict=True):
            yield metrics.JOB_ELASTIC_REPLICAS.sample(value, job_id=job_id, bound=bound)
    if job.interruptions is not None:
        yield metrics.JOB_INTERRUPTIONS.sample(job.interruptions, job_id=job_id)
    if job.top.ended:
        if job.top.progress.outcome == "failed":
            yield metrics.JOB_FAILURE_CAUSE.sample(1, job_id=job_id, cause=job.cause)
        return
    yield from _pods(job, job_id)


def _pods(job: Job, job_id: str) -> Iterator[Sample]:
    longest = sorted(job.waiting.items(), key=lambda one: -one[1])
    for reason, seconds in longest[:MOST_REASONS]:
        yield metrics.JOB_PENDING.sample(seconds, job_id=job_id, reason=reason)
    for phase, seconds in job.startup.items():
        yield metrics.JOB_STARTUP.sample(seconds, job_id=job_id, phase=phase)
    yield metrics.JOB_UNSCHEDULED_PODS.sample(job.unscheduled, job_id=job_id)
    yield metrics.JOB_HELD_GPUS.sample(job.gpus_held, job_id=job_id)
    yield metrics.JOB_WAITING_GPUS.sample(job.gpus_waiting, job_id=job_id)


def _replicas(job: Job, job_id: str) -> Iterator[Sample]:
    """Yield what each role has of each state, the states that matter most first."""
    for state in REPLICA_STATES:
        for one in job.top.progress.replicas:
            value = getattr(one, state)
            if value is not None:
                role = inert(one.role)
                yield metrics.JOB_REPLICAS.sample(value, job_id=job_id, role=role, state=state)
