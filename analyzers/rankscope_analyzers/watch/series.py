"""The series that `rankscope watch` exports, from the reports of successive evaluations. Pure.

Findings are those of the last evaluation, or of the last one that could see their job. Lost GPU
time is summed: an active incident takes its share of every second between two evaluations, from all
GPUs of the job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
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
from rankscope_analyzers.watch.absent_jobs import AbsentJobs
from rankscope_analyzers.watch.incident_history import Event, IncidentHistory, running
from rankscope_analyzers.watch.lost_time import LONGEST_GAP_SECONDS, LostTime
from rankscope_analyzers.watch.series_state import SeriesState


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
        self._read = False
        self._unread_since: float | None = None
        self._sums = LostTime()
        self._failures = 0
        self._errors: dict[Part, int] = dict.fromkeys(PARTS, 0)
        self._job_series: tuple[Sample, ...] = ()
        self._seen: dict[str, dict[str, finding_series.Seen]] = {}
        self._history = IncidentHistory()
        self._absent = AbsentJobs()
        self.events: tuple[Event, ...] = ()

    def update(
        self, reports: Sequence[JobReport], now: float, answered: Collection[str] | None = ()
    ) -> tuple[AnalysisError, ...]:
        """Replace the reports with those of a new evaluation.

        Args:
            reports: one for each job, the worst first; those that are the same objects as before
                were not renewed.
            now: Unix time of the evaluation.
            answered: nodes whose agents answered; None if only some jobs were evaluated.

        Returns:
            The errors of jobs whose reports could not be turned into series.
        """
        stood = {one.job_id for one in self._exported if _hung(one)}
        self._add_lost_time(reports, now)
        earlier = {id(report) for report in self._exported}
        made = [
            attempt("report", one.job_id, partial(self._made, one, now, id(one) not in earlier))
            for one in reports
        ]
        exported = [one for one in made if not isinstance(one, AnalysisError)]
        self._exported = tuple(one.report for one in exported)
        for report in self._exported:
            if hung := _hung(report):
                known = report.job_id in stood
                self._sums.add_hang(report.job_id, hung, _gpus(report), now, known=known)
        self._reports, self._newest, self._read = tuple(reports), now, True
        self._job_series = tuple(chain.from_iterable(one.samples for one in exported))
        held = {} if answered is not None else self._held(now)
        self._seen = held | {one.report.job_id: one.incidents for one in exported}
        broken = self._note_changes(now)
        if answered is not None:
            self._unread_since = None
            self._close_gone_jobs(answered, now)
        return tuple(one for one in (*made, *broken) if isinstance(one, AnalysisError))

    def _add_lost_time(self, reports: Sequence[JobReport], now: float) -> None:
        """Add the time since the last evaluation, for which its reports hold."""
        seconds = 0.0 if self._newest is None else max(0.0, now - self._newest)
        present = {report.job_id for report in reports if seconds <= LONGEST_GAP_SECONDS}
        for report in self._exported:
            judged = report.verdict is not None and report.verdict.confidence
            if report.job_id in present and not report.over and (judged or _hung(report)):
                self._sums.add(report.job_id, _gpus(report) * seconds, running(report), now)
        # If there are too many jobs, it is not the worst ones that are dropped.
        self._sums.keep(report.job_id for report in reversed(reports))

    def _note_changes(self, now: float) -> list[AnalysisError]:
        """Find the changes of incidents; return the errors of single jobs."""
        events = [
            attempt("report", report.job_id, partial(self._history.update, report, now))
            for report in reversed(self._exported)
        ]
        self._history.trim()
        changed = (one for one in reversed(events) if isinstance(one, tuple))
        self.events = tuple(chain.from_iterable(changed))
        return [one for one in events if isinstance(one, AnalysisError)]

    def _close_gone_jobs(self, answered: Collection[str], now: float) -> None:
        self._absent.look(self._reports, answered, now)
        present = {report.job_id for report in self._reports}
        self.events += self._history.close(present, self._absent.is_gone)

    def is_gone(self, job_id: str) -> bool:
        """Return True if a job is this watch's, and has not been seen for so long that it ended."""
        return self._absent.is_gone(job_id) and self._shard.has(job_id)

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
        sums = self._sums
        return SeriesState(sums.lost, sums.observed, self._history, sums.stands)

    def restore(self, kept: SeriesState) -> None:
        """Continue from saved state: that of another watch, or an older one of this watch.

        Failures and errors are this process's own and begin at 0 with it: saved ones would be older
        than those that were exported, and Prometheus would count all of them again.
        """
        self._sums.restore(kept.lost, kept.observed, kept.stands)
        self._history = kept.history
        self._absent.expect(kept.history.jobs())

    def announce_sums(self) -> None:
        """Export the sums of lost time as they are now: they have been saved."""
        self._sums.announce()

    def successor(self) -> WatchSeries:
        """Return series without findings, for this watch when it leads again.

        Sums remain, as another watch's saved ones may be older than those that were exported.
        """
        made = WatchSeries(self._shard)
        made._sums, made._failures, made._errors = self._sums, self._failures, self._errors
        return made

    def fail(self, now: float) -> None:
        """Record that nothing could be read: whether earlier findings still hold is unknown.

        Args:
            now: Unix time of the evaluation.
        """
        self._reports = self._exported = self._job_series = self.events = ()
        self._seen = self._held(now)
        self._failures += 1
        self._read = False
        if self._unread_since is None:
            self._unread_since = now

    def _held(self, now: float) -> dict[str, dict[str, finding_series.Seen]]:
        """Return the incidents of all jobs that were seen recently enough to be exported unseen."""
        held = {job_id: finding_series.still_held(own, now) for job_id, own in self._seen.items()}
        return {job_id: own for job_id, own in held.items() if own}

    def note_errors(self, errors: Iterable[AnalysisError]) -> None:
        """Count errors of analyzers."""
        for error in errors:
            self._errors[error.part] += 1

    def note_failures(self, count: int) -> None:
        """Count jobs whose records could not be judged."""
        self._failures += count

    def samples(self) -> Iterator[Sample]:
        """Yield all samples."""
        yield from self._job_series
        for job_id, incidents in self._seen.items():
            yield from finding_series.samples_of(job_id, incidents)
        present = {report.job_id for report in self._reports}
        for job_id, kind, at in self._history.recovered():
            if job_id in present:
                yield metrics.FINDING_RECOVERED.sample(at, job_id=_id(job_id), kind=kind)
        yield from self._sums.samples()
        if self._read:
            yield metrics.WATCH_JOBS.sample(len(self._reports))
        yield metrics.WATCH_FAILURES.sample(self._failures)
        for part, count in self._errors.items():
            yield metrics.WATCH_ANALYSIS_ERRORS.sample(count, part=part)
        own = {"shard": str(self._shard.index), "shards": str(self._shard.total)}
        if self._newest is not None:
            yield metrics.WATCH_LAST.sample(self._newest, **own)
        if self._unread_since is not None:
            yield metrics.WATCH_UNREAD_SINCE.sample(self._unread_since, **own)


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
