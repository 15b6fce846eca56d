"""Ranks that have ended, pods that failed or wait, devices that the kubelet calls unhealthy."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.places import by_rank
from rankscope_analyzers.layers.series_signals import series_signal
from rankscope_analyzers.text.name_lists import named, ranks_named

READS: tuple[Metric, ...] = (
    training.RANK_ALIVE,
    training.LAST_STEP_TIMESTAMP,
    pods.JOB_PODS,
    pods.DEVICE_UNHEALTHY,
)

PHASES = (("Failed", "pod_failed", "failed"), ("Pending", "pod_pending", "wait to run"))
"""Phases of pods that are something's fault, the kind of signal, and what is said of the pods."""

KINDS = frozenset(("missing_rank", "device_unhealthy", *(kind for _, kind, _ in PHASES)))


def signals(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield who is gone or never came."""
    yield from _ended(observed, job)
    for phase, kind, verb in PHASES:
        for series in observed.of(pods.JOB_PODS, job_id=job.job_id, phase=phase):
            if series.last > 0:
                count = f"{series.last:.0f} pod{'s' * (series.last > 1)}"
                said = f"{count} on node {series.node} {verb}"
                yield _of(kind, job, Where(nodes=(series.node,)), series, said)
    for series in observed.of(pods.DEVICE_UNHEALTHY):
        where = job.of_pod(series)
        if where and series.last >= 1:
            device = series.labels.get("device_id", "")
            said = f"the kubelet of node {series.node} calls device {device} unhealthy"
            yield _of("device_unhealthy", job, where, series, said)


def _ended(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the ranks that ended while others live on; a job that is over has nobody missing."""
    alive = by_rank(observed, training.RANK_ALIVE, job.job_id)
    gone = sorted(rank for rank, series in alive.items() if series.last == 0)
    if not gone or len(gone) == len(alive):
        return
    last = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id)
    since = min((last[rank].last for rank in gone if rank in last), default=None)
    nodes = tuple(dict.fromkeys(alive[rank].node for rank in gone))
    verb = "has" if len(gone) == 1 else "have"
    said = f"{ranks_named(gone)} ({named(nodes, 'node')}) {verb} ended while others go on"
    evidence = Evidence(training.RANK_ALIVE.name, 0.0, 1.0, "state", said)
    where = Where(nodes=nodes, ranks=tuple(gone))
    yield series_signal("missing_rank", "training", job.job_id, where, said, (evidence,), since)


def _of(kind: str, job: JobView, where: Where, series: Series, said: str) -> Finding:
    evidence = Evidence(series.name, series.last, 0.0, "count", said)
    return series_signal(kind, "pod", job.job_id, where, said, (evidence,), series.held_since())
