"""The series that `rankscope watch` exports, from the reports of successive evaluations. Pure.

Findings are those of the last evaluation. Lost GPU time is summed up: an active incident takes its
share of every second between two evaluations, from all GPUs of the job.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.findings.location import breadth
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.isolation.boundary import PARTS, AnalysisError, Part, attempt
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.incident_history import Event, IncidentHistory, running

LONGEST_GAP_SECONDS = 300.0
"""Longest time between two evaluations that counts: what happened during a longer one is
unknown."""

SECONDS_OF_AN_HOUR = 3600.0

MAXIMUM_JOBS = 4096
"""Jobs whose sums are kept; those that ended first are forgotten first."""

KINDS_OF_A_JOB = 16
"""Kinds of incidents of one job that are exported, the worst first."""


class WatchSeries:
    """The series of the findings of the last evaluation, and sums over all evaluations."""

    def __init__(self) -> None:
        self._reports: tuple[JobReport, ...] = ()
        self._exported: tuple[JobReport, ...] = ()
        self._newest: float | None = None
        self._lost: dict[str, dict[str, float]] = {}
        self._observed: dict[str, float] = {}
        self._failures = 0
        self._errors: dict[Part, int] = dict.fromkeys(PARTS, 0)
        self._job_series: tuple[Sample, ...] = ()
        self._history = IncidentHistory()
        self.events: tuple[Event, ...] = ()

    def update(self, reports: Sequence[JobReport], now: float) -> tuple[AnalysisError, ...]:
        """Replace the reports by those of a new evaluation.

        Args:
            reports: one for each job.
            now: Unix time of the evaluation.

        Returns:
            The errors of jobs whose reports could not be turned into series.
        """
        passed = 0.0 if self._newest is None else max(0.0, now - self._newest)
        if passed > LONGEST_GAP_SECONDS:
            passed = 0.0
        stood = {one.job_id for one in self._exported if _hung(one)}
        present = {report.job_id for report in reports}
        for report in self._exported:
            if report.job_id in present:
                self._add(report, passed)
        for report in reports:
            self._remember(report.job_id)
        samples = [attempt("report", one.job_id, partial(_job_samples, one)) for one in reports]
        made = zip(reports, samples, strict=True)
        self._exported = tuple(report for report, own in made if isinstance(own, tuple))
        for report in self._exported:
            if (hung := _hung(report)) and report.job_id not in stood:
                self._add_standing(report, hung)
        self._reports, self._newest = tuple(reports), now
        self._job_series = tuple(
            chain.from_iterable(one for one in samples if isinstance(one, tuple))
        )
        events = [
            attempt("report", report.job_id, partial(self._history.update, report, now))
            for report in self._exported
        ]
        self.events = tuple(chain.from_iterable(one for one in events if isinstance(one, tuple)))
        return tuple(one for one in (*samples, *events) if isinstance(one, AnalysisError))

    def kept(self) -> dict[str, Any]:
        """Return what is to outlive this watch, as JSON can hold it: sums and lives."""
        return {
            "lost": {job_id: dict(by_cause) for job_id, by_cause in self._lost.items()},
            "observed": self._observed,
            "failures": self._failures,
            "errors": self._errors,
            "lives": self._history.kept(),
        }

    def restore(self, kept: Any) -> None:
        """Go on from what another watch kept.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: it is no such thing; nothing changed.
        """
        lost = {
            str(job_id): defaultdict(float, {str(cause): _sum(n) for cause, n in by.items()})
            for job_id, by in kept["lost"].items()
        }
        observed = {job_id: _sum(kept["observed"][job_id]) for job_id in lost}
        failures = int(_sum(kept["failures"]))
        errors: dict[Part, int] = {part: int(_sum(kept["errors"][part])) for part in PARTS}
        lives = IncidentHistory.of(kept["lives"])
        self._lost, self._observed = dict(lost), observed
        self._failures, self._errors, self._history = failures, errors, lives

    def fail(self) -> None:
        """Note that nothing could be read: earlier findings may no longer be true."""
        self._reports = self._exported = self._job_series = self.events = ()
        self._failures += 1

    def note_errors(self, errors: Iterable[AnalysisError]) -> None:
        """Count errors of analyzers."""
        for error in errors:
            self._errors[error.part] += 1

    def note_failures(self, count: int) -> None:
        """Count jobs whose records could not be judged."""
        self._failures += count

    def _remember(self, job_id: str) -> None:
        lost = self._lost.pop(job_id, None)
        self._lost[job_id] = defaultdict(float) if lost is None else lost
        self._observed.setdefault(job_id, 0.0)
        while len(self._lost) > MAXIMUM_JOBS:
            oldest = next(iter(self._lost))
            del self._lost[oldest], self._observed[oldest]

    def _add(self, report: JobReport, seconds: float) -> None:
        """Sum up the time for which step times show what was lost."""
        judged = report.verdict is not None and report.verdict.confidence
        if not judged and not _hung(report):
            return
        gpus = _gpus(report)
        self._observed[report.job_id] += gpus * seconds
        left = 1.0
        for incident in running(report):
            if incident.cost is not None:
                # Several incidents cannot take more than all of the time.
                part = min(left, incident.cost.lost_fraction)
                left -= part
                self._lost[report.job_id][incident.cause.kind] += part * gpus * seconds

    def _add_standing(self, report: JobReport, hung: Incident) -> None:
        """Add the time from a job's last step to the evaluation that finds it hung.

        It counts as far as the job was watched and no other incident has taken it.
        """
        lost = self._lost[report.job_id]
        left = self._observed[report.job_id] - sum(lost.values())
        stood = hung.cost.gpu_hours * SECONDS_OF_AN_HOUR if hung.cost else 0.0
        lost[hung.cause.kind] += max(0.0, min(left, stood))

    def samples(self) -> Iterator[Sample]:
        """Yield all samples."""
        yield from self._job_series
        present = {report.job_id for report in self._reports}
        for job_id, kind, at in self._history.recovered():
            if job_id in present:
                yield metrics.FINDING_RECOVERED.sample(at, job_id=_id(job_id), kind=kind)
        for job_id, by_cause in self._lost.items():
            for cause, seconds in by_cause.items():
                yield metrics.LOST_GPU_SECONDS.sample(seconds, job_id=_id(job_id), cause=cause)
        for job_id, seconds in self._observed.items():
            yield metrics.OBSERVED_GPU_SECONDS.sample(seconds, job_id=_id(job_id))
        yield metrics.WATCH_JOBS.sample(len(self._reports))
        yield metrics.WATCH_FAILURES.sample(self._failures)
        for part, count in self._errors.items():
            yield metrics.WATCH_ANALYSIS_ERRORS.sample(count, part=part)
        if self._newest is not None:
            yield metrics.WATCH_LAST.sample(self._newest)


def _sum(value: float) -> float:
    """Return a sum as it was kept.

    Raises:
        ValueError: it is none.
    """
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{value!r} is no sum")
    return float(value)


def _hung(report: JobReport) -> Incident | None:
    """Return the incident in which no step of a job ends any longer, if there is one."""
    return next((one for one in running(report) if one.stands), None)


def _gpus(report: JobReport) -> int:
    return max(len(report.locations), report.frame.world_size if report.frame else 0)


def _job_samples(report: JobReport) -> tuple[Sample, ...]:
    job_id = _id(report.job_id)
    return (
        metrics.JOB_UNOBSERVED.sample(len(report.unobserved), job_id=job_id),
        metrics.JOB_ANALYSIS_ERRORS.sample(len(report.errors), job_id=job_id),
        *_clocks(report),
        *_findings(report),
    )


def _clocks(report: JobReport) -> Iterator[Sample]:
    for offset in report.verdict.clock_offsets if report.verdict else ():
        yield metrics.JOB_CLOCK_OFFSET.sample(
            offset.seconds, job_id=_id(report.job_id), node=inert(offset.node)
        )


def _findings(report: JobReport) -> Iterator[Sample]:
    """Yield the active incidents; of several of one kind only the first."""
    job_id = _id(report.job_id)
    seen: set[str] = set()
    for incident in running(report):
        kind = incident.cause.kind
        if kind in seen or len(seen) == KINDS_OF_A_JOB:
            continue
        seen.add(kind)
        yield metrics.FINDING_ACTIVE.sample(
            1, job_id=job_id, kind=kind, severity=incident.severity, owned_by=incident.cause.owner
        )
        yield metrics.FINDING_CONFIDENCE.sample(incident.confidence, job_id=job_id, kind=kind)
        if incident.cost is not None:
            lost = incident.cost.lost_fraction
            yield metrics.FINDING_LOST_FRACTION.sample(lost, job_id=job_id, kind=kind)
        if incident.since_unix_seconds is not None:
            since = incident.since_unix_seconds
            yield metrics.FINDING_SINCE.sample(since, job_id=job_id, kind=kind)
        yield _culprit(report, incident)


def _culprit(report: JobReport, incident: Incident) -> Sample:
    where = incident.where
    findings = (incident.cause, *incident.findings)
    ranks = _ranks(incident)
    location = report.locations.get(ranks[0]) if ranks else None
    narrow = breadth(incident.cause.where) == 0
    shown = incident.timing or next((one for one in findings if one.layer == "training"), None)
    return metrics.FINDING_CULPRIT_INFO.sample(
        1,
        job_id=_id(report.job_id),
        kind=incident.cause.kind,
        symptom=shown.kind if shown else "",
        rank=str(ranks[0]) if ranks else "",
        node=inert(location.node if location else _first(where.nodes)),
        gpu=inert(location.gpu if location else _first(where.gpus if narrow else ())),
        uuid=inert(location.uuid if location else _first(where.uuids if narrow else ())),
        device=inert(_first(where.devices)),
        runbook=runbooks.path(incident.runbook),
    )


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


def _id(job_id: str) -> str:
    return inert(job_id)
