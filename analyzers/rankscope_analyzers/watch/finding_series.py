"""The series of a job's active incidents, and of those that an evaluation could not see.

A late agent or an unreachable node is no recovery: the last state stays exported for a while, with
the time at which it was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.findings.location import breadth
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.incident_history import key_of, running

KINDS_OF_A_JOB = 16
"""Kinds of incidents of one job that are exported, the worst first."""

UNSEEN_SECONDS = 300.0
"""Seconds for which an unseen incident is exported. After as long without any evaluation
`RankscopeWatchLagging` fires."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An active incident as an evaluation saw it.

    Args:
        incident: its identity across evaluations, whatever its cause.
        samples: its series, except for when it was seen.
        at: Unix time of the evaluation.
        timed: True if that evaluation's step times show it, so that further such steps confirm it.
    """

    incident: str
    samples: tuple[Sample, ...]
    at: float
    timed: bool = False


SeenIncidents = Mapping[str, Seen]
"""The incidents of a job by the kind of their cause."""


def of_report(report: JobReport, before: SeenIncidents, now: float) -> dict[str, Seen]:
    """Return the exported incidents of a job; of several of one kind only the first.

    Args:
        report: of the newest evaluation.
        before: those that were exported until now.
        now: Unix time of the evaluation.
    """
    found: dict[str, Seen] = {}
    for incident in running(report):
        timed = incident.timing is not None and not incident.stands
        one = Seen(key_of(incident), tuple(_samples(report, incident)), now, timed)
        found.setdefault(incident.cause.kind, one)
    if report.missing and report.over is None:
        shown = {key_of(one) for one in running(report)}
        for kind, one in still_held(before, now).items():
            if one.incident not in shown:
                found.setdefault(kind, one)
    return dict(islice(found.items(), KINDS_OF_A_JOB))


def still_held(before: SeenIncidents, now: float) -> dict[str, Seen]:
    """Return the incidents that were seen recently enough to be exported unseen."""
    return {
        kind: replace(one, timed=False)
        for kind, one in before.items()
        if now - one.at <= UNSEEN_SECONDS
    }


def confirmed(incidents: SeenIncidents, now: float) -> dict[str, Seen]:
    """Return the incidents of a job whose state new steps have not changed."""
    return {kind: replace(one, at=now) if one.timed else one for kind, one in incidents.items()}


def samples_of(job_id: str, incidents: SeenIncidents) -> Iterator[Sample]:
    """Yield the series of a job's incidents."""
    for kind, one in incidents.items():
        yield from one.samples
        yield metrics.FINDING_SEEN.sample(one.at, job_id=inert(job_id), kind=kind)


def _samples(report: JobReport, incident: Incident) -> Iterator[Sample]:
    of_kind = {"job_id": inert(report.job_id), "kind": incident.cause.kind}
    yield metrics.FINDING_ACTIVE.sample(
        1, **of_kind, severity=incident.severity, owned_by=incident.cause.owner
    )
    yield metrics.FINDING_CONFIDENCE.sample(incident.confidence, **of_kind)
    if incident.cost is not None:
        yield metrics.FINDING_LOST_FRACTION.sample(incident.cost.lost_fraction, **of_kind)
    if incident.since_unix_seconds is not None:
        yield metrics.FINDING_SINCE.sample(incident.since_unix_seconds, **of_kind)
    yield _culprit(report, incident)


def _culprit(report: JobReport, incident: Incident) -> Sample:
    where = incident.where
    ranks = _ranks(incident)
    location = report.locations.get(ranks[0]) if ranks else None
    narrow = breadth(incident.cause.where) == 0
    shown = symptom(incident)
    return metrics.FINDING_CULPRIT_INFO.sample(
        1,
        job_id=inert(report.job_id),
        kind=incident.cause.kind,
        symptom=shown.kind if shown else "",
        rank=str(ranks[0]) if ranks else "",
        node=inert(location.node if location else _first(where.nodes)),
        gpu=inert(location.gpu if location else _first(where.gpus if narrow else ())),
        uuid=inert(location.uuid if location else _first(where.uuids if narrow else ())),
        device=inert(_first(where.devices)),
        runbook=runbooks.path(incident.runbook),
    )


def symptom(incident: Incident) -> Finding | None:
    """Return what step times show of an incident, None if they show nothing."""
    findings = (incident.cause, *incident.findings)
    return incident.timing or next((one for one in findings if one.layer == "training"), None)


def _ranks(incident: Incident) -> tuple[int, ...]:
    """Return the ranks that findings of an incident name, the worst first.

    A fault of a whole node affects all its ranks and names none of them, unless single ranks slow
    down or end because of it.
    """
    findings = (incident.cause, *incident.findings)
    narrow = [one for one in findings if breadth(one.where) == 0]
    timed = incident.cost is not None and any(one.layer == "training" for one in narrow)
    if timed or incident.cause in narrow:
        return incident.where.ranks
    return narrow[0].where.ranks if narrow else ()


def _first(texts: Sequence[str]) -> str:
    return texts[0] if texts else ""
