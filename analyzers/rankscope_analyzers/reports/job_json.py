"""A job's report as JSON. The schema is part of the product's interface (docs/verdict_json.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope_analyzers.findings.finding import Finding, RankLocation
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.isolation.boundary import AnalysisError
from rankscope_analyzers.profiles.stacks import GroupedStacks
from rankscope_analyzers.reports import job_summary, verdict_json
from rankscope_analyzers.text import runbooks


def as_object(job: JobReport) -> dict[str, Any]:
    """Return JSON-ready values: the verdict of step times, then the conclusions of all layers."""
    found = verdict_json.as_object(job.verdict) if job.verdict else _without_steps(job.missing)
    found["verdict"] |= _answer(job)
    return found | {
        "unobserved": list(job.unobserved),
        "missing": list(job.missing),
        "analysis_errors": [_error(error) for error in job.errors],
        "incidents": [_incident(incident) for incident in job.incidents],
        "observations": [_finding(finding) for finding in job.observations],
        "places": [_location(location) for _, location in sorted(job.locations.items())],
        "stacks": _stacks(job.stacks),
        "gpu_seconds": None
        if job.spent is None
        else {part: round(seconds, 3) for part, seconds in job.spent.items()},
        "sources": list(job.sources),
        "made_unix_seconds": job.made_unix_seconds,
    }


def _stacks(grouped: GroupedStacks | None) -> list[dict[str, Any]] | None:
    """Return the ranks' stacks, suspects first, innermost frame first."""
    if grouped is None:
        return None
    return [
        {
            "ranks": list(one.ranks),
            "suspect": one.suspect,
            "frames": [
                {"function": frame.function, "file": frame.file, "line": frame.line}
                for frame in one.stack
            ],
        }
        for one in grouped.groups
    ]


def _error(error: AnalysisError) -> dict[str, Any]:
    return {"part": error.part, "reason": error.reason, "place": error.location}


def _without_steps(missing: Sequence[str]) -> dict[str, Any]:
    why = missing[0] if missing else "there are no step records"
    return {
        "verdict": {
            "class": None,
            "ranks": [],
            "pp_stage": -1,
            "lost_fraction": 0.0,
            "confidence": 0.0,
            "summary": f"no verdict: {why}",
        },
        "other_findings": [],
        "what_if": None,
        "asides": [],
        "clock_offsets": [],
        "steps_judged": 0,
        "median_step_seconds": None,
        "naive": {"rank": None, "step_time_spread": 0.0},
        "ranks": [],
    }


def _answer(job: JobReport) -> Mapping[str, Any]:
    """Return the first incident's information beyond step times."""
    if not job.incidents:
        has_answer = job.over or (job.verdict is not None and job_summary.doubt(job))
        return {"cause": None, **({"summary": job_summary.headline(job)} if has_answer else {})}
    first = job.incidents[0]
    return {
        **(_hung(first.timing) if job.verdict is None and first.stands else {}),
        "cause": _finding(first.cause),
        "summary": job_summary.headline(job) if job.over else first.summary,
        "action": first.action,
        "runbook": runbooks.path(first.runbook),
        "severity": first.severity,
        "owner": first.cause.owner,
        "confidence": round(first.confidence, 4),
    }


def _hung(found: Finding | None) -> Mapping[str, Any]:
    """Return what a hang alone shows about a job without step records."""
    if found is None:
        return {}
    return {"class": found.kind, "ranks": list(found.where.ranks), "lost_fraction": 1.0}


def _incident(incident: Incident) -> dict[str, Any]:
    cost, where = incident.cost, incident.where
    return {
        "summary": incident.summary,
        "severity": incident.severity,
        "owner": incident.cause.owner,
        "confidence": round(incident.confidence, 4),
        "layers": list(incident.layers),
        "ranks": list(where.ranks),
        "nodes": list(where.nodes),
        "gpus": list(where.gpus),
        "gpu_uuids": list(where.uuids),
        "devices": list(where.devices),
        "lost_fraction": round(cost.lost_fraction, 6) if cost else None,
        "gpu_hours_lost": round(cost.gpu_hours, 6) if cost else None,
        "since_unix_seconds": incident.since_unix_seconds,
        "until_unix_seconds": incident.until_unix_seconds,
        "action": incident.action,
        "runbook": runbooks.path(incident.runbook),
        "cause": _finding(incident.cause),
        "signals": [_finding(finding) for finding in incident.findings],
        "other_causes": [_finding(finding) for finding in incident.other_causes],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "layer": finding.layer,
        "severity": finding.severity,
        "owner": finding.owner,
        "summary": finding.summary,
        "ranks": list(finding.where.ranks),
        "nodes": list(finding.where.nodes),
        "devices": list(finding.where.devices),
        "since_unix_seconds": finding.since_unix_seconds,
        "until_unix_seconds": finding.until_unix_seconds,
        "source": finding.source,
        "evidence": verdict_json.evidence_objects(finding.evidence),
    }


def _location(location: RankLocation) -> dict[str, Any]:
    return {
        "rank": location.rank,
        "node": location.node,
        "local_rank": location.local_rank,
        "gpu": location.gpu or None,
        "gpu_uuid": location.uuid or None,
        "nics": list(location.nics),
        "pod": location.pod or None,
    }
