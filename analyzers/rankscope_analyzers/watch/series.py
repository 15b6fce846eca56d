"""The series that `rankscope watch` exports, from the reports of successive evaluations. Pure.

Findings are those of the last evaluation, or of the last one that could see their job. Lost GPU
time is summed: an active incident takes its share of every second between two evaluations, from all
GPUs of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.contract.shards import WHOLE, Shard
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.isolation.boundary import PARTS, AnalysisError, Part, attempt
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch import finding_series
from rankscope_analyzers.watch.incident_history import Event, IncidentHistory, running
from rankscope_analyzers.watch.series_state import SeriesState

LONGEST_GAP_SECONDS = 300.0
"""Longest time between two evaluations that counts: what happened during a longer one is
unknown."""

SECONDS_OF_AN_HOUR = 3600.0

MAXIMUM_JOBS = 4096
"""Jobs whose sums are kept; those that ended first are dropped first."""


@dataclass(frozen=True, slots=True)
class _Exported:
    """A job whose report could be turned into series, and its series."""

    report: JobReport
    samples: tuple[Sample, ...]
    incidents: dict[str, finding_series.Seen]


class WatchSeries:
    """The series of the findings of the last evaluation, and sums over all evaluations.

    Args:
        shard: of the jobs that are judged.
    """

    def __init__(self, shard: Shard = WHOLE) -> None:
        self._shard = shard
        self._reports: tuple[JobReport, ...] = ()
        self._exported: tuple[JobReport, ...] = ()
        self._newest: float | None = None
        self._lost: dict[str, dict[str, float]] = {}
        self._observed: dict[str, float] = {}
        self._failures = 0
        self._errors: dict[Part, int] = dict.fromkeys(PARTS, 0)
        self._job_series: tuple[Sample, ...] = ()
        self._seen: dict[str, dict[str, finding_series.Seen]] = {}
        self._history = IncidentHistory()
        self.events: tuple[Event, ...] = ()

    def update(self, reports: Sequence[JobReport], now: float) -> tuple[AnalysisError, ...]:
        """Replace the reports with those of a new evaluation.

        Args:
            reports: one for each job; those that are the same objects as before were not renewed.
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
        earlier = {id(report) for report in self._exported}
        made = [
            attempt("report", one.job_id, partial(self._made, one, now, id(one) not in earlier))
            for one in reports
        ]
        exported = [one for one in made if not isinstance(one, AnalysisError)]
        self._exported = tuple(one.report for one in exported)
        for report in self._exported:
            if (hung := _hung(report)) and report.job_id not in stood:
                self._add_time_before_hang(report, hung)
        self._reports, self._newest = tuple(reports), now
        self._job_series = tuple(chain.from_iterable(one.samples for one in exported))
        self._seen = {one.report.job_id: one.incidents for one in exported}
        events = [
            attempt("report", report.job_id, partial(self._history.update, report, now))
            for report in self._exported
        ]
        self.events = tuple(chain.from_iterable(one for one in events if isinstance(one, tuple)))
        return tuple(one for one in (*made, *events) if isinstance(one, AnalysisError))

    def _made(self, report: JobReport, now: float, renewed: bool) -> _Exported:
        before = self._seen.get(report.job_id, {})
        incidents = finding_series.of_report(report, before, now) if renewed else dict(before)
        return _Exported(report, tuple(_job_samples(report)), incidents)

    def confirm(self, job_ids: Iterable[str], now: float) -> None:
        """Record that new steps of some jobs show the same as their reports.

        Args:
            job_ids: of the jobs.
            now: Unix time.
        """
        for job_id in job_ids:
            if job_id in self._seen:
                self._seen[job_id] = finding_series.confirmed(self._seen[job_id], now)

    @property
    def state(self) -> SeriesState:
        """Return the state to save: sums, and the incidents of jobs."""
        return SeriesState(self._failures, self._errors, self._lost, self._observed, self._history)

    def restore(self, kept: SeriesState) -> None:
        """Continue from the state that another watch saved."""
        self._lost, self._observed = kept.lost, kept.observed
        self._failures, self._errors, self._history = kept.failures, kept.errors, kept.history

    def fail(self, now: float) -> None:
        """Record that nothing could be read: whether earlier findings still hold is unknown.

        Args:
            now: Unix time of the evaluation.
        """
        self._reports = self._exported = self._job_series = self.events = ()
        held = {job_id: finding_series.still_held(own, now) for job_id, own in self._seen.items()}
        self._seen = {job_id: own for job_id, own in held.items() if own}
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
        """Add up the time for which step times show what was lost."""
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

    def _add_time_before_hang(self, report: JobReport, hung: Incident) -> None:
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
        for job_id, incidents in self._seen.items():
            yield from finding_series.samples_of(job_id, incidents)
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
            index, total = str(self._shard.index), str(self._shard.total)
            yield metrics.WATCH_LAST.sample(self._newest, shard=index, shards=total)


def _hung(report: JobReport) -> Incident | None:
    """Return the incident in which no step of a job ends any longer, if there is one."""
    return next((one for one in running(report) if one.stands), None)


def _gpus(report: JobReport) -> int:
    return max(len(report.locations), report.frame.world_size if report.frame else 0)


def _job_samples(report: JobReport) -> Iterator[Sample]:
    job_id = _id(report.job_id)
    yield metrics.JOB_UNOBSERVED.sample(len(report.unobserved), job_id=job_id)
    yield metrics.JOB_ANALYSIS_ERRORS.sample(len(report.errors), job_id=job_id)
    if report.convergence is not None:
        yield metrics.JOB_CONVERGENCE.sample(1, job_id=job_id, status=report.convergence)
    for offset in report.verdict.clock_offsets if report.verdict else ():
        yield metrics.JOB_CLOCK_OFFSET.sample(
            offset.seconds, job_id=_id(report.job_id), node=inert(offset.node)
        )


def _id(job_id: str) -> str:
    return inert(job_id)
