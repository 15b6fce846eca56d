"""Word the incidents of a trace as findings: the sentence, the numbers to act on, the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.findings.finding import Cost, Evidence, FaultClass, Finding, Subject
from rankscope_analyzers.numeric.row_statistics import row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.running.rank_finding import PAGE_COST
from rankscope_analyzers.text.wording import against, duration

SECONDS_PER_HOUR = 3600.0

NEARLY_EQUAL = 0.02
"""A stage this close to the mean needs no layer more or less: one layer is more than that."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How to speak about one class.

    Args:
        source: the column that shows it.
        sentence: with places for `who` and for the two values as `change`.
        meaning: what the two values are.
    """

    source: str
    sentence: str
    meaning: str
    action: str
    runbook: str


WORDINGS: Mapping[FaultClass, Wording] = {
    "gpu_compute": Wording(
        "compute_seconds",
        "{who} needs {change} the compute time of its peers",
        "compute time over that of the same stage",
        "Compare clocks, power and temperature of these GPUs with their peers.",
        "docs/runbooks/RankscopeStraggler.md",
    ),
    "data_loader": Wording(
        "data_seconds",
        "{who} waits for input: {change} a step",
        "input time, against the median of all ranks",
        "Check the input of these ranks: storage mount, loader workers, CPU share.",
        "docs/runbooks/RankscopeStragglerData.md",
    ),
    "network_link": Wording(
        "sync_seconds",
        "the gradient exchange at {who} takes {change}",
        "transfer time of the slowest gradient group, against what it was",
        "Compare port errors, retransmits, link rate and NCCL transport of these ranks.",
        "docs/runbooks/RankscopeSlowNetworkGroup.md",
    ),
    "storage_checkpoint": Wording(
        "step_seconds",
        "storage is slow for {who}: {change}",
        "time of a checkpoint, or of waiting for input, against what is usual",
        "Look at the load and the health of the shared file system and its clients.",
        "docs/runbooks/RankscopeSlowStorage.md",
    ),
    "global_slowdown": Wording(
        "compute_seconds",
        "the whole job became slower: {change} a step",
        "median of all ranks (or groups), against the start of the run",
        "Look for what all ranks share: power or clock caps, fabric congestion, batch size.",
        "docs/runbooks/RankscopeGlobalSlowdown.md",
    ),
    "partition_imbalance": Wording(
        "compute_seconds",
        "the work is split unevenly: {who} {change}",
        "compute of the heavy stage against the others, or spread between replicas",
        "Rebalance the work: no hardware is at fault.",
        "docs/runbooks/RankscopeUnevenWork.md",
    ),
    "host_transient": Wording(
        "step_seconds",
        "the host stalls {who} now and then, for {change}",
        "mean length of a stall; healthy hosts have none",
        "Collect garbage at the same step on all ranks; look for other load on these hosts.",
        "docs/runbooks/RankscopeHostStalls.md",
    ),
}


def findings(frame: StepFrame, incidents: Sequence[Incident], stages: int) -> tuple[Finding, ...]:
    """Return a finding for each incident.

    Args:
        frame: the job that they were found in.
        incidents: what was found.
        stages: pipeline stages of the job.
    """
    return tuple(_finding(frame, incident, stages) for incident in incidents)


def _finding(frame: StepFrame, incident: Incident, stages: int) -> Finding:
    wording = WORDINGS[incident.kind]
    relative = _is_ratio(incident)
    unit = "ratio" if relative else "seconds"
    gpus = tuple(_gpu(frame, *place) for place in zip(incident.ranks, incident.nodes, strict=True))
    newest = float(row_maximum(frame.starts + frame.step).max())
    lasted = max((incident.until or newest) - incident.since, 0.0)
    hours = incident.lost_fraction * lasted * frame.world_size / SECONDS_PER_HOUR
    return Finding(
        kind=incident.kind,
        severity="page" if incident.lost_fraction >= PAGE_COST else "ticket",
        subject=Subject(frame.job_id, incident.ranks, incident.nodes, gpus),
        summary=wording.sentence.format(who=_who(incident, gpus), change=_change(incident)),
        action=_action(incident, stages) or wording.action,
        evidence=(
            Evidence(wording.source, incident.observed, incident.expected, unit, wording.meaning),
            *_stage_evidence(incident),
        ),
        cost=Cost(incident.lost_fraction, hours),
        confidence=incident.confidence,
        runbook=wording.runbook,
        since_unix_seconds=incident.since,
        until_unix_seconds=incident.until,
    )


def _gpu(frame: StepFrame, rank: int, node: str) -> int | None:
    """Return the GPU of a rank on its node, None where the rank is elsewhere now or none is known.

    Ranks are numbered anew when a job shrinks; incidents keep the numbers they were found with.
    """
    column = int(np.searchsorted(frame.ranks, rank))
    there = column < len(frame.ranks) and frame.ranks[column] == rank
    if not there or frame.nodes[column] != node or frame.gpus[column] < 0:
        return None
    return int(frame.gpus[column])


def _is_ratio(incident: Incident) -> bool:
    uneven_replicas = incident.kind == "partition_imbalance" and incident.stage < 0
    return incident.kind == "gpu_compute" or uneven_replicas


def _who(incident: Incident, gpus: tuple[int | None, ...]) -> str:
    if incident.kind == "partition_imbalance":
        return f"stage {incident.stage} computes" if incident.stage >= 0 else "replicas differ by"
    if not incident.ranks:
        return "all ranks"
    more = len(incident.ranks) - 1
    company = f" and {more} more rank{'s' if more > 1 else ''}" if more else ""
    gpu = f", GPU {gpus[0]}" if gpus[0] is not None else ""
    return f"rank {incident.ranks[0]} (node {incident.nodes[0]}{gpu}){company}"


def _change(incident: Incident) -> str:
    if incident.kind == "gpu_compute":
        return f"{incident.observed:.2f}x"
    if _is_ratio(incident):
        return f"{incident.observed:.1%} (standard deviation within a step)"
    return against(incident.observed, incident.expected)


def _action(incident: Incident, stages: int) -> str | None:
    """Say how much work to move, where that is what helps.

    With one stage at h and P - 1 at m, all are equal at (h + (P - 1) m) / P.
    """
    if incident.kind != "partition_imbalance":
        return None
    if incident.stage < 0:
        return (
            "Deal sequences to replicas by their total length (or its square, for attention), not "
            f"by their number: the slowest replica of a step costs {incident.lost_fraction:.0%}."
        )
    mean = sum(incident.stages) / stages
    moves = (
        f"{'from' if weight > mean else 'to'} stage {stage} {abs(1 - mean / weight):.0%} of its own"
        for stage, weight in enumerate(incident.stages)
        if abs(weight - mean) > NEARLY_EQUAL * mean
    )
    return (
        f"Move layers until every stage computes {duration(mean)}: {', '.join(moves)}. "
        "No hardware is at fault."
    )


def _stage_evidence(incident: Incident) -> tuple[Evidence, ...]:
    """Return what each stage computes beside what all would if the work was split evenly."""
    if not incident.stages:
        return ()
    mean = sum(incident.stages) / len(incident.stages)
    return tuple(
        Evidence("compute_seconds", weight, mean, "seconds", f"stage {stage}, if split evenly")
        for stage, weight in enumerate(incident.stages)
    )
