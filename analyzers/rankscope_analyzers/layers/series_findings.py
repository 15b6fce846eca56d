"""Findings derived from series, with a query that shows the evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_analyzers.findings.builder import make_finding
from rankscope_analyzers.findings.finding import Advice, Evidence, Finding, Layer, Severity, Where


def series_finding(
    kind: str,
    layer: Layer,
    job_id: str,
    where: Where,
    sentence: str,
    evidence: tuple[Evidence, ...],
    since_unix_seconds: float | None = None,
    *,
    until_unix_seconds: float | None = None,
    severity: Severity | None = None,
    instead: Advice | None = None,
) -> Finding:
    """Return a finding as `make_finding` does, with the query of its first evidence as source."""
    return make_finding(
        kind,
        layer,
        job_id,
        where,
        sentence,
        evidence,
        since_unix_seconds,
        until_unix_seconds=until_unix_seconds,
        source=query_of(evidence, job_id, where),
        severity=severity,
        instead=instead,
    )


def query_of(evidence: Sequence[Evidence], job_id: str, where: Where) -> str:
    """Return the query that shows the first evidence again, empty without any."""
    return query(evidence[0].source, job_id, where) if evidence else ""


def query(source: str, job_id: str, where: Where) -> str:
    """Return a query that shows again what was read; other sources than our series are unchanged.

    Args:
        source: names of series, several joined by ` + `.
        job_id: the job.
        where: the location that the query selects.
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
