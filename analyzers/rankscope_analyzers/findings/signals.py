"""What any layer says about a job: one type for all of them, so that they can be put together.

A finding of the timing of steps, a throttled GPU, an Xid, a lossy link, a socket fallback: each
becomes a signal that says what, where, since when and by which evidence. `incidents` then asks
which of them explains which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankscope_analyzers.findings.advice import ADVICE, Advice
from rankscope_analyzers.findings.finding import Cost, Evidence, Severity

Layer = Literal["training", "gpu", "kernel", "link", "nccl", "environment", "host", "pod", "log"]

LAYER_NAMES: dict[Layer, str] = {
    "training": "step times",
    "gpu": "GPU counters",
    "kernel": "kernel log",
    "link": "link counters",
    "nccl": "NCCL",
    "environment": "environment variables",
    "host": "host pressure",
    "pod": "pods",
    "log": "job logs",
}


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank runs; texts are empty where nobody says.

    Args:
        gpu: the driver's index of its GPU on the node.
        uuid: the GPU's UUID.
        nics: RDMA devices or interfaces that serve this GPU, the nearest first.
        pod: namespace/name.
        pod_uid: the pod's UID.
        by_local_rank: the GPU is only known by the rank's number on its node.
    """

    rank: int
    node: str
    local_rank: int | None = None
    gpu: str = ""
    uuid: str = ""
    nics: tuple[str, ...] = ()
    pod: str = ""
    pod_uid: str = ""
    by_local_rank: bool = False


@dataclass(frozen=True, slots=True)
class Where:
    """What a signal is about; empty fields do not narrow it down.

    Args:
        nodes: names of nodes.
        ranks: global ranks, the worst first.
        uuids: of GPUs.
        gpus: their indices on their nodes, as people call them.
        devices: network devices.
    """

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def whole_job(self) -> bool:
        """Whether it is about everybody."""
        return not (self.nodes or self.ranks or self.uuids or self.devices)


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that one layer saw.

    Args:
        kind: what, a key of `advice.ADVICE` or a class of step times.
        job_id: whose, empty if the layer does not know jobs.
        summary: one sentence that names who and how much.
        action: what to do first.
        runbook: name of the alert whose runbook says more.
        since_unix_seconds: when it began, None if it was there when we looked first.
        until_unix_seconds: when it ended, None while it goes on.
        source: the series, file or query that it was read from.
        cost: what it took, where the layer itself can tell.
    """

    kind: str
    layer: Layer
    severity: Severity
    job_id: str
    where: Where
    summary: str
    action: str
    runbook: str
    evidence: tuple[Evidence, ...] = ()
    since_unix_seconds: float | None = None
    until_unix_seconds: float | None = None
    source: str = ""
    cost: Cost | None = None


def advised(
    kind: str,
    layer: Layer,
    job_id: str,
    where: Where,
    summary: str,
    evidence: tuple[Evidence, ...] = (),
    since_unix_seconds: float | None = None,
    *,
    source: str = "",
    severity: Severity | None = None,
    instead: Advice | None = None,
) -> Signal:
    """Return a signal with what the table of advice says of its kind.

    Where it is worse or milder than its kind usually is `severity` says so; `instead` is advice in
    place of the table's.
    """
    advice = instead or ADVICE[kind]
    return Signal(
        kind=kind,
        layer=layer,
        severity=severity or advice.severity,
        job_id=job_id,
        where=where,
        summary=summary,
        action=advice.action,
        runbook=advice.runbook,
        evidence=evidence,
        since_unix_seconds=since_unix_seconds,
        source=source,
    )
