"""The series of quotas, and which quota a job waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope_agent.contract.metrics import cluster_jobs as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.workloads.jobs import Job
from rankscope_analyzers.workloads.quotas import Quota

MOST_QUOTAS = 256
"""Quotas that have series, the fullest first: at most 16 each."""


def quota_samples(quotas: Sequence[Quota]) -> Iterator[Sample]:
    """Yield the usage of quotas."""
    for quota in sorted(quotas, key=_order)[:MOST_QUOTAS]:
        for resource, use in quota.uses.items():
            labels = {
                "quota_kind": quota.kind,
                "job_namespace": inert(quota.namespace),
                "quota": inert(quota.name),
                "resource": inert(resource),
            }
            yield metrics.QUOTA_USED.sample(use.used, **labels)
            yield metrics.QUOTA_LIMIT.sample(use.limit, **labels)


def _order(quota: Quota) -> tuple[int, str, str]:
    return -len(quota.full_of), quota.namespace, quota.name


def awaited(job: Job, quotas: Sequence[Quota]) -> str:
    """Return the name of the quota that a job waits for, empty if it waits for none.

    A ResourceQuota prevents the creation of pods, so it is judged by missing pods.
    """
    if "quota" in job.waiting:
        return job.queue
    if job.top.ended or job.state not in {"pending", "running", "restarting"}:
        return ""
    missing = sum((one.wanted or 0) - (one.succeeded or 0) for one in job.top.progress.replicas)
    if job.pods >= missing:
        return ""
    full = (one for one in quotas if one.namespace == job.top.namespace and one.full_of)
    return next((one.name for one in full), "")
