"""Ranks that have ended, pods that failed or are pending, devices that are unhealthy."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import pods
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import series_finding

READS: tuple[Metric, ...] = (
    pods.JOB_PODS,
    pods.DEVICE_UNHEALTHY,
)

PHASES = (("Failed", "pod_failed", "failed"), ("Pending", "pod_pending", "wait to run"))
"""Phases of pods that are faults, with the kind of finding and its phrase."""

KINDS = frozenset(("device_unhealthy", *(kind for _, kind, _ in PHASES)))


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what keeps the job's pods from running."""
    for phase, kind, verb in PHASES:
        for series in observed.of(pods.JOB_PODS, job_id=job.job_id, phase=phase):
            if series.last > 0:
                count = f"{series.last:.0f} pod{'s' * (series.last > 1)}"
                sentence = f"{count} on node {series.node} {verb}"
                yield _of(kind, job, Where(nodes=(series.node,)), series, sentence)
    for series in observed.of(pods.DEVICE_UNHEALTHY):
        where = job.of_pod(series)
        if where and series.last >= 1:
            device = series.labels.get("device_id", "")
            sentence = f"the kubelet of node {series.node} calls device {device} unhealthy"
            yield _of("device_unhealthy", job, where, series, sentence)


def _of(kind: str, job: JobView, where: Where, series: Series, sentence: str) -> Finding:
    evidence = Evidence(series.name, series.last, 0.0, "count", sentence)
    return series_finding(
        kind, "pod", job.job_id, where, sentence, (evidence,), series.held_since()
    )
