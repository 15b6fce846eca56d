"""Ranks that have ended, pods that failed or wait, devices that the kubelet calls unhealthy."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence
from rankscope_analyzers.findings.signals import Signal, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.advice import Advice
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.places import by_rank
from rankscope_analyzers.text.name_lists import named, ranks_named

WHY_ENDED = "Look at the end of these ranks' logs: rankscope explain job-log LOG..."
DESCRIBE = "Look at the pods' state and events (kubectl describe pod)."
SCHEDULE = "Look at why the pods wait (kubectl describe pod): GPUs, quota, volumes, images."
DEVICE = "Drain the node and look for Xids and the GPU's state."

MISSING = Advice("missing_rank", "training", "page", WHY_ENDED, "RankscopeMissingRank")
FAILED = Advice("pod_failed", "pod", "page", DESCRIBE, "RankscopePodFailed")
PENDING = Advice("pod_pending", "pod", "ticket", SCHEDULE, "RankscopePodFailed")
UNHEALTHY = Advice("device_unhealthy", "pod", "page", DEVICE, "RankscopeGpuLost")

READS: tuple[Metric, ...] = (
    training.RANK_ALIVE,
    training.LAST_STEP_TIMESTAMP,
    pods.JOB_PODS,
    pods.DEVICE_UNHEALTHY,
)


def signals(observed: Observed, job: JobView) -> Iterator[Signal]:
    """Yield who is gone or never came."""
    yield from _ended(observed, job)
    for phase, advice, verb in (("Failed", FAILED, "failed"), ("Pending", PENDING, "wait to run")):
        for series in observed.of(pods.JOB_PODS, job_id=job.job_id, phase=phase):
            if series.last > 0:
                count = f"{series.last:.0f} pod{'s' * (series.last > 1)}"
                said = f"{count} on node {series.node} {verb}"
                yield _of(advice, job, Where(nodes=(series.node,)), series, said)
    for series in observed.of(pods.DEVICE_UNHEALTHY):
        where = job.of_pod(series)
        if where and series.last >= 1:
            device = series.labels.get("device_id", "")
            said = f"the kubelet of node {series.node} calls device {device} unhealthy"
            yield _of(UNHEALTHY, job, where, series, said)


def _ended(observed: Observed, job: JobView) -> Iterator[Signal]:
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
    yield MISSING.signal(job.job_id, where, said, (evidence,), since)


def _of(advice: Advice, job: JobView, where: Where, series: Series, said: str) -> Signal:
    evidence = Evidence(series.name, series.last, 0.0, "count", said)
    return advice.signal(job.job_id, where, said, (evidence,), series.held_since())
