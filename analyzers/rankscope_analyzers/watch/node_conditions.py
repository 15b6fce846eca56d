"""Findings about nodes as conditions of Kubernetes' nodes; pure.

Only reports of hardware, drivers and kernels about themselves are published: those who repair nodes
act on conditions, and step times and logs are written by pods, which could use them to accuse a
node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.text.sanitize import visible

PREFIX = "Rankscope"
MOST_MESSAGE = 1024
"""Characters of a message: the API server accepts no longer note in an Event, and nodes are stored
completely at each heartbeat. The admission policy allows no longer ones in conditions either."""

MOST_NODES = 16
"""Nodes of one finding: one about more is not about a node but about a switch, a driver, a whole
rack."""

Status = Literal["True", "False", "Unknown"]

GPU, LINK, HOST = f"{PREFIX}GpuProblem", f"{PREFIX}LinkProblem", f"{PREFIX}HostProblem"
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("gpu_lost", "gpu_unresponsive", "gpu_recovery_needed"), GPU),
    **dict.fromkeys(("ecc_uncorrected", "row_remap_failed", "row_remap_pending"), GPU),
    **dict.fromkeys(("fabric_unhealthy", "nvlink_degraded", "nvlink_fabric"), GPU),
    **dict.fromkeys(("gpu_pcie_degraded", "gpu_memory", "gpu_hardware", "driver"), GPU),
    **dict.fromkeys(("thermal_slowdown", "power_brake", "device_unhealthy"), GPU),
    **dict.fromkeys(("link_down", "flapping", "errors", "rate_below_maximum"), LINK),
    **dict.fromkeys(("pci_link_degraded", "network_nic", "pcie"), LINK),
    **dict.fromkeys(("host_memory", "host_kernel", "storage"), HOST),
}
"""The type of condition of each kind of finding that is published; no others are."""

_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_HEALTHY = "NoProblem"
_UNSEEN = "NotObserved"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a node; as in the node problem detector, True is a problem.

    Args:
        reason: the kind of finding in CamelCase.
    """

    type: str
    status: Status
    reason: str
    message: str


def problems(reports: Iterable[JobReport]) -> Mapping[str, Mapping[str, Condition]]:
    """Return the problems of each node, by type of condition; of several the worst."""
    found: dict[str, dict[str, Finding]] = {}
    for finding in _active(reports):
        for node in finding.where.nodes if len(finding.where.nodes) <= MOST_NODES else ():
            of_node = found.setdefault(node, {}) if _NODE.fullmatch(node) else {}
            known = of_node.get(TYPES[finding.kind])
            if known is None or _rank(finding) < _rank(known):
                of_node[TYPES[finding.kind]] = finding
    return {
        node: {kind: _problem(kind, finding) for kind, finding in sorted(own.items())}
        for node, own in found.items()
    }


def observed(reports: Iterable[JobReport]) -> frozenset[str]:
    """Return the nodes with complete observations, so that those without a problem have none."""
    return frozenset(
        location.node
        for report in reports
        if not report.missing
        for location in report.locations.values()
    )


def wanted(
    before: Mapping[str, Condition], now: Mapping[str, Condition], *, seen: bool
) -> Mapping[str, Condition]:
    """Return the conditions that a node should have.

    Args:
        before: those that it has, by type.
        now: its problems.
        seen: whether it could be observed.
    """
    rest = {kind: _over(kind, seen=seen) for kind in before if kind not in now}
    return {**rest, **now}


def _active(reports: Iterable[JobReport]) -> Iterator[Finding]:
    for report in reports:
        incidents = (one for one in report.incidents if one.until_unix_seconds is None)
        of_incidents = (f for one in incidents for f in (one.cause, *one.findings))
        beside = (f for one in report.incidents for f in one.other_causes)
        for finding in (*of_incidents, *beside, *report.observations):
            if finding.kind in TYPES and finding.until_unix_seconds is None:
                yield finding


def _rank(finding: Finding) -> tuple[bool, str, str]:
    """Sort key of findings: pages first, otherwise the same order each time."""
    return finding.severity != "page", finding.kind, finding.summary


def _problem(kind: str, finding: Finding) -> Condition:
    reason = "".join(word.capitalize() for word in finding.kind.split("_"))
    message = visible(f"{finding.summary} {finding.action}", MOST_MESSAGE)[:MOST_MESSAGE]
    return Condition(kind, "True", reason, message)


def _over(kind: str, *, seen: bool) -> Condition:
    if seen:
        return Condition(kind, "False", _HEALTHY, "Rankscope sees no such problem on this node.")
    message = "Rankscope cannot observe this node: no known job runs there, or no agent."
    return Condition(kind, "Unknown", _UNSEEN, message)
