"""Build findings about links: which port of which node, and which ranks it serves."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_analyzers.findings.builder import make_finding
from rankscope_analyzers.findings.finding import Evidence, Finding, Severity, Where
from rankscope_analyzers.links.frame import Ports
from rankscope_analyzers.links.quantities import LinkFault
from rankscope_analyzers.text.name_lists import ranks_named


@dataclass(frozen=True, slots=True)
class Link:
    """The link that a finding is about.

    Args:
        where: the node, or all nodes of a rail; the adapter, which has one name on all of them; the
            GPUs and ranks that it serves, if known.
        port: the port's number; empty for a rail.
    """

    job_id: str
    where: Where
    port: str


def link(ports: Ports, rows: tuple[int, ...]) -> Link:
    """Return the link of a port, or of the ports of a rail."""
    chosen = ports.table.iloc[list(rows)]
    first = chosen.iloc[0]
    where = Where(
        nodes=tuple(chosen["node"]),
        ranks=tuple(sorted({rank for ranks in chosen["ranks"] for rank in ranks})),
        gpus=tuple(gpu for gpu in chosen["gpu"] if gpu),
        devices=(first["device"],),
    )
    return Link(first["job_id"], where, first["port"] if len(rows) == 1 else "")


def finding(
    kind: LinkFault,
    severity: Severity,
    about: Link,
    phrase: str,
    evidence: tuple[Evidence, ...],
    since: float,
) -> Finding:
    """Return a finding whose sentence begins with the link; `since` is in Unix seconds."""
    summary = f"{_who(about)} {phrase}"
    return make_finding(
        kind, "link", about.job_id, about.where, summary, evidence, since, severity=severity
    )


def _who(about: Link) -> str:
    where = about.where
    (device,) = where.devices
    if len(where.nodes) > 1:
        return f"rail {device} ({len(where.nodes)} nodes{_whose(where)})"
    return f"{device} port {about.port} of node {where.nodes[0]}{_served(where)}"


def _served(where: Where) -> str:
    whose = _whose(where).removeprefix("; ")
    return f" ({whose})" if whose else ""


def _whose(where: Where) -> str:
    parts = []
    if len(where.gpus) == 1:
        parts.append(f"GPU {where.gpus[0]}")
    if where.ranks:
        parts.append(ranks_named(where.ranks))
    return f"; {', '.join(parts)}" if parts else ""
