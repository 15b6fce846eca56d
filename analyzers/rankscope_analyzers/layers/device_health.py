"""Devices of the job's pods that the kubelet reports as unhealthy."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import pods
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers import listed_pods
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import series_finding

READS: tuple[Metric, ...] = (pods.DEVICE_UNHEALTHY, *listed_pods.READS)

KINDS = frozenset(("device_unhealthy",))


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the job's devices that are unhealthy."""
    for series in listed_pods.shown(observed, pods.DEVICE_UNHEALTHY):
        where = job.of_pod(series)
        if where and series.last >= 1:
            device = series.labels.get("device_id", "")
            sentence = f"the kubelet of node {series.node} calls device {device} unhealthy"
            evidence = Evidence(series.name, series.last, 0.0, "count", sentence)
            since = series.held_since()
            yield series_finding(
                "device_unhealthy", "pod", job.job_id, where, sentence, (evidence,), since
            )
