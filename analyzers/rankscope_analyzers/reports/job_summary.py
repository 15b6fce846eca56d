"""The sentences about a job that all reports share: the answer, its cost, its confidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_analyzers.findings.finding import Evidence, Finding, RankLocation
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.reports import verdict_remarks
from rankscope_analyzers.text.wording import clock, period

STEP_TIMES_SOURCE = "step records"
"""The source of the timing, if a finding names no series."""


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One measurement of an incident with its layer; `measured` is None if it was only seen."""

    layer: str
    measured: Evidence | None
    meaning: str
    source: str


def headline(report: JobReport) -> str:
    """Return the answer in one sentence."""
    began, found = ending(report), answer(report)
    if began or report.incidents:
        return f"{began}{found}"
    return _capital(found)


def ending(report: JobReport) -> str:
    """Return how the job ended, to be followed by the answer; empty if it is not known to be."""
    if report.over is None:
        return ""
    explained = bool(report.incidents) and report.incidents[0].ended_job
    return f"{_capital(report.over.summary)}. {'Cause' if explained else 'Until then'}: "


def answer(report: JobReport) -> str:
    """Return the first incident, or what is known of slow ranks without one."""
    if not report.incidents:
        return _slowness(report)
    first = report.incidents[0]
    return _before_end(first) if report.over else sentence(first)


def harmless(report: JobReport) -> tuple[Finding, ...]:
    """Return what was seen without any effect; the answer already says that a job is over."""
    return tuple(one for one in report.observations if one is not report.over)


UNSEEN_DELAY = "no rank that was seen delays the others"


def _slowness(report: JobReport) -> str:
    """Return what is known of slow ranks if there is no incident, as a clause."""
    verdict = report.verdict
    if verdict is None and report.missing:
        return f"no verdict: {report.missing[0]}."
    if verdict is None:
        return "nothing is known to be wrong; no step records show how fast the ranks are."
    if not verdict.confidence:
        return f"no verdict: {verdict.why_none}." if verdict.why_none else "no verdict."
    if doubtful := doubt(report):
        seen = verdict_remarks.cost_of_differences(verdict)
        seen = f"no straggler was seen, although {seen}" if seen else UNSEEN_DELAY
        return f"{seen}, but not everything was seen: {doubtful}."
    return f"{verdict_remarks.no_straggler(verdict)}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def doubt(report: JobReport) -> str:
    """Return why it is uncertain that nothing is wrong, empty if it is certain."""
    if report.missing:
        return report.missing[0]
    frame = report.frame
    if frame is not None and frame.unobserved_count:
        return f"no records of {frame.unobserved_count} of {frame.world_size} ranks"
    return ""


def sentence(incident: Incident) -> str:
    """Return who, what, why and since when; if it is over, that comes first."""
    if incident.ended_with_job:
        return f"until the job ended: {_before_end(incident)}"
    sentences = incident.summary.rstrip(". ")
    since, until = incident.since_unix_seconds, incident.until_unix_seconds
    if until is None:
        when = period(since, None)
        return f"{sentences}, {when}." if when and when not in sentences else f"{sentences}."
    began = "" if since is None else f", since {clock(since)}"
    return f"over, recovered at {clock(until)}: {sentences}{began}."


def _before_end(incident: Incident) -> str:
    """Return the same of an incident of a job that is over."""
    if not incident.ended_with_job:
        return sentence(incident)
    since, sentences = incident.since_unix_seconds, incident.summary.rstrip(". ")
    began = "" if since is None else f", since {clock(since)}"
    return f"{sentences}{began}."


def cost(incident: Incident) -> str:
    """Return what an incident costs, or did while it lasted."""
    spent = incident.cost
    if spent is None:
        return "Unknown: there are no step times."
    hours = f"{spent.gpu_hours:.3g} GPU-hours"
    if incident.stands:
        return f"All time since then, {hours} so far"
    part = f"{spent.lost_fraction:.0%} of every step"
    if incident.until_unix_seconds is not None:
        return f"{part} while it lasted, {hours}"
    return f"{part}, {hours} so far"


def costs(incident: Incident) -> str:
    """Return the verb that goes with what an incident costs."""
    return "costs" if incident.until_unix_seconds is None else "cost"


def confidence(report: JobReport) -> float | None:
    """Return how certain the answer is, None if nothing was judged."""
    if report.incidents:
        return report.incidents[0].confidence
    return report.verdict.confidence if report.verdict else None


def evidence(incident: Incident) -> tuple[EvidenceLine, ...]:
    """Return all layers' measurements, the cause's first; what was only seen is a line too."""
    lines = []
    for finding in (incident.cause, *incident.findings):
        layer, source = finding.seen_by, _source(finding)
        if not finding.evidence:
            lines.append(EvidenceLine(layer, None, finding.summary, source))
        lines.extend(EvidenceLine(layer, one, one.meaning, source) for one in finding.evidence)
    return tuple(lines)


def explained(incident: Incident) -> tuple[Finding, ...]:
    """Return what an incident combines and its sentence does not mention."""
    every = (incident.cause, *incident.findings, *incident.other_causes)
    return tuple(finding for finding in every if finding.summary not in incident.summary)


def _source(finding: Finding) -> str:
    return finding.source or (STEP_TIMES_SOURCE if finding.layer == "training" else "")


def locations(report: JobReport) -> Mapping[int, RankLocation]:
    """Return where every known rank runs: from the inventory, else from its records."""
    frame = report.frame
    known: dict[int, RankLocation] = {}
    if frame is not None:
        for column, (rank, node) in enumerate(zip(frame.ranks.tolist(), frame.nodes, strict=True)):
            known[rank] = RankLocation(rank, node, gpu=frame.gpu(column))
    known.update(report.locations)
    return dict(sorted(known.items()))


def culprits(report: JobReport) -> tuple[int, ...]:
    """Return the ranks in the answer, the worst first; none if it is about all or none."""
    return report.incidents[0].where.ranks if report.incidents else ()


SECONDS_PER_HOUR = 3600.0

LEAST_SHARE = 0.005
"""Fraction of a job's GPU time: smaller parts are left out of the sentence."""


def spent(report: JobReport) -> str:
    """Return where the job's GPU time went, the largest parts first; empty if unknown."""
    total = sum(report.spent.values()) if report.spent else 0.0
    if not report.spent or total <= 0:
        return ""
    largest = sorted(report.spent.items(), key=lambda one: -one[1])
    shares = [f"{part} {n / total:.1%}" for part, n in largest if n / total >= LEAST_SHARE]
    return f"Of {total / SECONDS_PER_HOUR:.3g} GPU-hours: {', '.join(shares)}."
