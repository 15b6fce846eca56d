"""What lasted until a job ended, and is over because the job is. Pure.

The steps of the last half hour are judged, and none follow that could show that a fault is over.
Series of a pod's logs stay for as long as the pod, which may be days after its processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.fusion.job_report import Incident
from rankscope_analyzers.layers.endings import ENDS
from rankscope_analyzers.stragglers.diagnosis import Diagnosis

OF_PROCESSES = frozenset(
    (
        "socket_fallback",
        "gdr_missing",
        "channels_differ",
        "environment_differs",
        "checkpoint_failed",
        "checkpoint_overwritten",
        "checkpoint_share",
        "loss_jump",
        "loss_diverging",
        "learning_rate_changed",
        "batch_changed",
    )
)
"""Kinds of findings on how processes run, which neither ended the job nor outlast it."""


def end_of(diagnosis: Diagnosis | None, findings: Iterable[Finding], now: float) -> float | None:
    """Return when a job ended as Unix time, None if it goes on or that is not known.

    Args:
        diagnosis: of its steps.
        findings: of all other layers.
        now: Unix time, which counts if the job is over and nothing says since when.
    """
    over = next((one for one in findings if one.kind in ENDS), None)
    if over is None:
        return None
    stepped = None if diagnosis is None else diagnosis.frame.ended_unix_seconds
    known = (at for at in (over.since_unix_seconds, stepped) if at is not None)
    return next(known, now)


def with_end(diagnosis: Diagnosis, at: float) -> Diagnosis:
    """Return a diagnosis whose active findings end at a time."""
    verdict = diagnosis.verdict
    cause = None if verdict.cause is None else _ended(verdict.cause, at)
    others = tuple(_ended(one, at) for one in verdict.others)
    return replace(diagnosis, verdict=replace(verdict, cause=cause, others=others))


def of_processes_ended(findings: Iterable[Finding], at: float) -> list[Finding]:
    """Return findings, of which those on how processes run end at a time."""
    return [_ended(one, at) if one.kind in OF_PROCESSES else one for one in findings]


def _ended(finding: Finding, at: float) -> Finding:
    if finding.until_unix_seconds is not None:
        return finding
    return replace(finding, until_unix_seconds=_end(finding, at))


def _end(finding: Finding, at: float) -> float:
    """Return when a finding ended with its job: others may show it after the first rank's end."""
    since = finding.since_unix_seconds
    return at if since is None else max(since, at)


def marked(
    incidents: Sequence[Incident], active: Collection[Finding], at: float
) -> tuple[Incident, ...]:
    """Return the incidents; those that ended with the job say so.

    Args:
        incidents: of a job.
        active: findings of step times that were active until the job ended, without their end.
        at: when that was.
    """

    def with_job(one: Incident) -> bool:
        if one.until_unix_seconds is None:
            return False
        if one.timing is None:
            ended = one.until_unix_seconds == _end(one.cause, at)
            return ended and one.cause.kind in OF_PROCESSES
        return replace(one.timing, until_unix_seconds=None) in active

    return tuple(replace(one, ended_with_job=True) if with_job(one) else one for one in incidents)
