"""What is wrong with a link: which port of which node, whose rail it is, and by which evidence."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_analyzers.findings.finding import Evidence, Severity
from rankscope_analyzers.links.frame import Ports
from rankscope_analyzers.links.quantities import RUNBOOKS, LinkFault
from rankscope_analyzers.text.name_lists import ranks_named


@dataclass(frozen=True, slots=True)
class LinkSubject:
    """The link that a finding is about.

    Args:
        nodes: the node, or all nodes of a rail.
        device: the adapter's name, the same on all nodes of a rail.
        port: the port's number; empty for a rail.
        gpus: GPUs that it serves, those that are known.
        ranks: ranks that it serves, those that are known.
    """

    job_id: str
    nodes: tuple[str, ...]
    device: str
    port: str
    gpus: tuple[str, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """One fault of one link.

    Args:
        since_unix_seconds: start of the first interval in which it showed.
        runbook: file under docs/runbooks that says what to do.
    """

    kind: LinkFault
    severity: Severity
    subject: LinkSubject
    summary: str
    evidence: tuple[Evidence, ...]
    runbook: str
    since_unix_seconds: float


def subject(ports: Ports, rows: tuple[int, ...]) -> LinkSubject:
    """Name a port, or the ports of a rail."""
    chosen = ports.table.iloc[list(rows)]
    first = chosen.iloc[0]
    return LinkSubject(
        job_id=first["job_id"],
        nodes=tuple(chosen["node"]),
        device=first["device"],
        port=first["port"] if len(rows) == 1 else "",
        gpus=tuple(gpu for gpu in chosen["gpu"] if gpu),
        ranks=tuple(sorted({rank for ranks in chosen["ranks"] for rank in ranks})),
    )


def finding(
    kind: LinkFault,
    severity: Severity,
    about: LinkSubject,
    saying: str,
    evidence: tuple[Evidence, ...],
    since: float,
) -> LinkFinding:
    """Make a finding; its sentence begins with whom it is about."""
    summary = f"{_who(about)} {saying}"
    return LinkFinding(kind, severity, about, summary, evidence, RUNBOOKS[kind], since)


def _who(about: LinkSubject) -> str:
    if len(about.nodes) > 1:
        return f"rail {about.device} ({len(about.nodes)} nodes{_whose(about)})"
    return f"{about.device} port {about.port} of node {about.nodes[0]}{_served(about)}"


def _served(about: LinkSubject) -> str:
    whose = _whose(about).removeprefix("; ")
    return f" ({whose})" if whose else ""


def _whose(about: LinkSubject) -> str:
    parts = []
    if len(about.gpus) == 1:
        parts.append(f"GPU {about.gpus[0]}")
    if about.ranks:
        parts.append(ranks_named(about.ranks))
    return f"; {', '.join(parts)}" if parts else ""
