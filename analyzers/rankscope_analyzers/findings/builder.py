"""A finding with the advice on its kind; every analyzer creates findings with it."""

from __future__ import annotations

from rankscope_analyzers.findings.advice import ADVICE
from rankscope_analyzers.findings.finding import (
    Advice,
    Cost,
    Evidence,
    Finding,
    Layer,
    Severity,
    Where,
)


def make_finding(
    kind: str,
    layer: Layer,
    job_id: str,
    where: Where,
    summary: str,
    evidence: tuple[Evidence, ...] = (),
    since_unix_seconds: float | None = None,
    *,
    until_unix_seconds: float | None = None,
    source: str = "",
    severity: Severity | None = None,
    instead: Advice | None = None,
    cost: Cost | None = None,
    confidence: float | None = None,
) -> Finding:
    """Return a finding with the advice on its kind.

    `severity` is for findings that are worse or milder than their kind usually is; `instead` is
    advice that replaces the table's.
    """
    advice = instead or ADVICE[kind]
    return Finding(
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
        until_unix_seconds=until_unix_seconds,
        source=source,
        cost=cost,
        confidence=confidence,
        owner=advice.owner,
    )
