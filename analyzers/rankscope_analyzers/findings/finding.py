"""What an analyzer concludes: who, what, since when, by which evidence, at what cost."""

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
Severity = Literal["page", "ticket"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measurement that speaks for a finding.

    Args:
        source: the column or signal it was read from.
        observed: the culprit's value.
        expected: the value of those it is compared with.
        unit: unit of both values.
        meaning: what the two values are, in words.
    """

    source: str
    observed: float
    expected: float
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a finding is about.

    Args:
        ranks: best guess first, empty when nobody is to blame.
        stage: heavy pipeline stage, -1 where it is about none.
    """

    job_id: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    gpus: tuple[int | None, ...]
    stage: int = -1


@dataclass(frozen=True, slots=True)
class Cost:
    """What a fault took: the share of step time over its duration, and that in GPU-hours."""

    lost_fraction: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of one job, from one analyzer.

    Args:
        since_unix_seconds: start of the first step it held back, by the clock of its node.
        until_unix_seconds: end of the last such step, None while it goes on.
        confidence: 0 to 1; timing alone never reaches 1.
        runbook: file under docs/runbooks that says what to do.
    """

    kind: FaultClass
    severity: Severity
    subject: Subject
    summary: str
    action: str
    evidence: tuple[Evidence, ...]
    cost: Cost
    confidence: float
    runbook: str
    since_unix_seconds: float
    until_unix_seconds: float | None
