"""The series of one job of the cluster, at most 25 of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from rankscope_agent.contract.metrics import cluster_jobs as metrics
from rankscope_agent.contract.metrics import job_starts, job_status
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.workloads.jobs import Job
from rankscope_analyzers.workloads.nodes import Notice
from rankscope_analyzers.workloads.state import REPLICA_STATES

MOST_SERIES = 25
MOST_REPLICAS = 8
MOST_REASONS = 4
MOST_NOTICES = 4

Notices = Mapping[str, Mapping[Notice, float | None]]
"""Unix time of each notice, by node."""


def of_job(job: Job, notices: Notices, quota: str = "") -> Iterator[Sample]:
    """Return the series of a job, the most important first.

    Args:
        job: at one moment.
        notices: of nodes.
        quota: that the job waits for, empty if it waits for none.
    """
    return islice(_of_job(job, notices, quota), MOST_SERIES)


def _of_job(job: Job, notices: Notices, quota: str) -> Iterator[Sample]:
    job_id = inert(job.job_id)
    yield metrics.JOB_WORKLOAD_INFO.sample(
        1,
        job_id=job_id,
        kind=job.top.kind,
        job_class=inert(job.top.job_class),
        queue=inert(job.queue),
    )
    yield metrics.JOB_STATE.sample(1, job_id=job_id, state=job.state)
    if job.attempt is not None:
        yield job_status.JOB_ATTEMPT.sample(job.attempt, job_id=job_id, source="object")
    if job.interruptions is not None:
        yield metrics.JOB_INTERRUPTIONS.sample(job.interruptions, job_id=job_id)
    if job.top.ended:
        if job.top.progress.outcome == "failed":
            yield metrics.JOB_FAILURE_CAUSE.sample(1, job_id=job_id, cause=job.cause)
    else:
        yield from _pods(job, job_id)
        if quota:
            yield metrics.JOB_QUOTA_INFO.sample(1, job_id=job_id, quota=inert(quota))
        yield from islice(_notices(job, notices, job_id), MOST_NOTICES)
    if job.top.progress.elastic is not None:
        for bound, value in zip(("min", "max"), job.top.progress.elastic, strict=True):
            yield metrics.JOB_ELASTIC_REPLICAS.sample(value, job_id=job_id, bound=bound)
    yield from islice(_replicas(job, job_id), MOST_REPLICAS)


def _notices(job: Job, notices: Notices, job_id: str) -> Iterator[Sample]:
    """Yield the notices of the job's nodes, the latest first."""
    found = [
        (since or 0.0, node, notice)
        for node in job.nodes & notices.keys()
        for notice, since in notices[node].items()
    ]
    for since, node, notice in sorted(found, reverse=True):
        node = inert(node)
        yield metrics.JOB_NODE_NOTICE.sample(since, job_id=job_id, node=node, notice=notice)


def _pods(job: Job, job_id: str) -> Iterator[Sample]:
    longest = sorted(job.waiting.items(), key=lambda one: -one[1])
    for reason, seconds in longest[:MOST_REASONS]:
        yield metrics.JOB_PENDING.sample(seconds, job_id=job_id, reason=reason)
    for phase, seconds in job.startup.items():
        yield job_starts.JOB_STARTUP.sample(seconds, job_id=job_id, phase=phase)
    yield metrics.JOB_UNSCHEDULED_PODS.sample(job.unscheduled, job_id=job_id)
    yield metrics.JOB_HELD_GPUS.sample(job.gpus_held, job_id=job_id)
    yield metrics.JOB_WAITING_GPUS.sample(job.gpus_waiting, job_id=job_id)


def _replicas(job: Job, job_id: str) -> Iterator[Sample]:
    """Yield the number of each role's pods in each state, the most important states first."""
    for state in REPLICA_STATES:
        for one in job.top.progress.replicas:
            value = getattr(one, state)
            if value is not None:
                role = inert(one.role)
                yield metrics.JOB_REPLICAS.sample(value, job_id=job_id, role=role, state=state)
