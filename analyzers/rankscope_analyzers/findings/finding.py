"""The conclusion of any layer about a job: one type for all layers, so that they can be fused.

Slow steps, a throttled GPU, an Xid, a lossy link, a socket fallback: each is a finding that states
what, where, since when, by which evidence and at what cost. `fusion.incidents` then determines
which of them explains which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultClass = Literal[
    "gpu_compute",
    "data_loader",
    "network_link",
    "storage_checkpoint",
    "global_slowdown",
    "partition_imbalance",
    "host_transient",
]
"""Kinds of findings that step times can show."""

Severity = Literal["page", "ticket"]
Owner = Literal["platform", "network", "ml"]
"""Who acts on a finding: those who run the nodes, those who run the network, those who train."""

Layer = Literal[
    "training", "signals", "gpu", "kernel", "link", "nccl", "environment", "host", "pod", "log"
]

GpuUnknown = Literal["", "contested", "partition"]
"""Why it is unknown which GPU a rank uses: others of its node may use the one of its local rank, or
it is a part of any."""

LAYER_NAMES: dict[Layer, str] = {
    "training": "step times",
    "signals": "checkpoints and training signals",
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
class Evidence:
    """One measurement that supports a finding.

    Args:
        source: the column or series that it was read from.
        observed: value of the culprit.
        expected: value of those that it is compared with.
        unit: unit of both values.
        meaning: what the two values are, in words.
    """

    source: str
    observed: float
    expected: float
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a fault: share of step time over its duration, and the same in GPU-hours."""

    lost_fraction: float
    gpu_hours: float


NO_COST = Cost(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class RankLocation:
    """Where a rank runs; texts are empty if unknown.

    Args:
        gpu: the driver's index of its GPU on the node.
        uuid: the GPU's UUID, or that of the part of a GPU that it uses.
        nics: RDMA devices or interfaces that serve this GPU, the nearest first.
        pod: namespace/name.
        pod_uid: the pod's UID.
        by_local_rank: the GPU is only inferred from the local rank.
        parent_uuid: of the GPU that it uses a part of (MIG).
        gpu_unknown: why neither UUID nor local rank tells which GPU it is.
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
    parent_uuid: str = ""
    gpu_unknown: GpuUnknown = ""

    @property
    def whole_uuid(self) -> str:
        """Return the UUID that faults of its GPU name, also if it uses only a part of it."""
        return self.parent_uuid or self.uuid

    @property
    def gpu_known(self) -> bool:
        """Return True if it is known which GPU the rank uses."""
        return bool(self.uuid or self.gpu) and not self.gpu_unknown


@dataclass(frozen=True, slots=True)
class Where:
    """What a finding is about; empty fields do not narrow it down.

    Args:
        nodes: names of nodes, each once.
        ranks: global ranks, the worst first.
        uuids: of GPUs.
        gpus: their indices on their nodes.
        devices: network devices.
        stage: heavy pipeline stage, -1 if none.
        culprits: where each of the ranks ran when it was slow, if that was recorded; it may have
            moved since.
    """

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    stage: int = -1
    culprits: tuple[RankLocation, ...] = ()

    @property
    def whole_job(self) -> bool:
        """Return True if it is about the whole job."""
        return not (self.nodes or self.ranks or self.uuids or self.devices)


@dataclass(frozen=True, slots=True)
class Advice:
    """What is usually the same about one kind of finding.

    Args:
        severity: how bad it is unless the finding overrides it.
        action: what to do first, one or two sentences.
        runbook: name of the alert whose runbook has more: a file of docs/runbooks without
            extension.
        owner: who acts on it.
    """

    severity: Severity
    action: str
    runbook: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion of one layer.

    Args:
        kind: a key of `advice.ADVICE`.
        job_id: empty if the layer does not know jobs.
        summary: one sentence that names the culprit and the size of the effect.
        action: what to do first.
        runbook: name of the alert with the runbook.
        since_unix_seconds: when it began, by the clock of its node; None if it was already there
            at the first observation.
        until_unix_seconds: when it ended, None while it is active.
        source: the series, file or query that it was read from.
        cost: None if the layer cannot know it.
        confidence: 0 to 1, None if it depends on other layers; timing alone never reaches 1.
        owner: who acts on it; the platform where nothing says otherwise.
        fault: what exactly is wrong, if several layers can report it: of one node it is one fault.
        agreeing: further layers that reported the same fault.
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
    confidence: float | None = None
    owner: Owner = "platform"
    fault: str = ""
    agreeing: tuple[Layer, ...] = ()

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return all layers that reported it, its own first."""
        return (self.layer, *self.agreeing)

    @property
    def seen_by(self) -> str:
        """Return the names of these layers."""
        return " and ".join(LAYER_NAMES[layer] for layer in self.layers)

    @property
    def known_cost(self) -> Cost:
        """Return the cost, zero if unknown."""
        return self.cost or NO_COST
