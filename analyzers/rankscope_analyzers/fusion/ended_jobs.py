"""What step times showed of a job that is over: it lasted until the job ended. Pure.

The steps of the last half hour are judged, and none follow that could show that a fault is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.fusion.job_report import Incident
from rankscope_analyzers.layers.endings import ENDS
from rankscope_analyzers.stragglers.diagnosis import Diagnosis


def with_end(diagnosis: Diagnosis, findings: Iterable[Finding]) -> Diagnosis:
    """Return a diagnosis whose active findings end with the job, if that is over.

    Args:
        diagnosis: of the steps.
        findings: of all other layers.
    """
    over = next((one for one in findings if one.kind in ENDS), None)
    if over is None:
        return diagnosis
    seen, stepped = over.since_unix_seconds, diagnosis.frame.ended_unix_seconds
    at = stepped if seen is None else seen
    if at is None:
        return diagnosis
    verdict = diagnosis.verdict
    cause = None if verdict.cause is None else _ended(verdict.cause, at)
    others = tuple(_ended(one, at) for one in verdict.others)
    return replace(diagnosis, verdict=replace(verdict, cause=cause, others=others))


def _ended(finding: Finding, at: float) -> Finding:
    if finding.until_unix_seconds is not None:
        return finding
    return replace(finding, until_unix_seconds=at)


def marked(incidents: Sequence[Incident], active: Collection[Finding]) -> tuple[Incident, ...]:
    """Return the incidents; those that ended with the job say so.

    Args:
        incidents: of a job.
        active: findings of step times that were active until the job ended, without their end.
    """
    return tuple(
        replace(one, ended_with_job=True)
        if one.until_unix_seconds is not None
        and one.timing is not None
        and replace(one.timing, until_unix_seconds=None) in active
        else one
        for one in incidents
    )
