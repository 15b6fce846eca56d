"""What is always the same about one kind of signal: how bad it is and what to do about it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_analyzers.findings.finding import Evidence, Severity
from rankscope_analyzers.findings.signals import Layer, Signal, Where


@dataclass(frozen=True, slots=True)
class Advice:
    """One kind of signal of a layer.

    Args:
        runbook: the name of a file under docs/runbooks, without its ending.
    """

    kind: str
    layer: Layer
    severity: Severity
    action: str
    runbook: str

    def signal(
        self,
        job_id: str,
        where: Where,
        said: str,
        evidence: tuple[Evidence, ...],
        since_unix_seconds: float | None = None,
    ) -> Signal:
        """Return a signal of this kind; its source is the query of the first evidence."""
        return Signal(
            kind=self.kind,
            layer=self.layer,
            severity=self.severity,
            job_id=job_id,
            where=where,
            summary=said,
            action=self.action,
            runbook=f"docs/runbooks/{self.runbook}.md",
            evidence=evidence,
            since_unix_seconds=since_unix_seconds,
            source=query(evidence[0].source, job_id, where) if evidence else "",
        )


def query(source: str, job_id: str, where: Where) -> str:
    """Return a query that shows again what was read; what is no series of ours stays as it is.

    Args:
        source: names of series, several joined by ` + `.
        job_id: whose.
        where: what about.
    """
    names = source.split(" + ")
    if not all(name in LABELS for name in names):
        return source
    return " or ".join(f"{name}{_selector(name, job_id, where)}" for name in names)


def _selector(name: str, job_id: str, where: Where) -> str:
    values = {"job_id": (job_id,), "uuid": where.uuids, "device": where.devices}
    matchers = [
        f"{label}={json.dumps(values[label][0])}"
        for label in LABELS[name]
        if len(values.get(label, ())) == 1
    ]
    return "{" + ", ".join(matchers) + "}" if matchers else ""


LABELS = {metric.name: metric.labels for metric in CATALOGUE}
