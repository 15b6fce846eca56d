"""The traces of all jobs, continued at each look of a watch, and saved across restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.goodput.executed import executed
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.tracing.job_trace import JobTrace, begun, restored
from rankscope_analyzers.tracing.spans import Span

KEPT_AS = "traces"
"""Their part of a watch's state."""

OVER_SECONDS = 1800.0
"""Seconds without a step after which a job's span ends; after a longer pause it is unknown who had
the GPUs."""

MOST_JOBS = 1000
"""Jobs with a trace; the span of the one without a step for longest ends first."""

Send = Callable[[Sequence[Span]], None]
"""Sends spans that have ended, and returns at once."""


class Traces:
    """Follows jobs and sends their ended spans.

    Args:
        send: sends them.
        close: sends waiting spans, at the end of the watch.
    """

    def __init__(self, send: Send, close: Callable[[], None] = lambda: None) -> None:
        self._send, self.close = send, close
        self._jobs: dict[str, JobTrace] = {}

    def look(
        self, gathered: Gathered, reports: Sequence[JobReport], now: float
    ) -> list[AnalysisError]:
        """Send what has ended; return the errors of single jobs.

        Args:
            gathered: what was read.
            reports: one for each job.
            now: Unix time.
        """
        records = {one.job_id: one for one in gathered.jobs}
        errors = []
        for report in reports:
            job = records.get(report.job_id)
            made = attempt("report", report.job_id, partial(self._look, report, job))
            if isinstance(made, AnalysisError):
                errors.append(made)
            else:
                self._send(made)
        self._end(now)
        return errors

    def _look(self, report: JobReport, job: JobRecords | None) -> list[Span]:
        if job is None or job.records.empty:
            return []
        steps = executed(job.records, max(len(report.locations), job.world_size or 0))
        if not len(steps):
            return []
        trace = self._jobs.get(report.job_id) or begun(report.job_id, steps)
        self._jobs[report.job_id] = trace
        return list(trace.look(steps, report, job.beside))

    def _end(self, now: float) -> None:
        ordered = sorted(self._jobs.values(), key=lambda one: one.last_end)
        surplus = max(0, len(ordered) - MOST_JOBS)
        for at, one in enumerate(ordered):
            if at < surplus or now - one.last_end > OVER_SECONDS:
                del self._jobs[one.job_id]
                self._send(list(one.close()))

    def stand_by(self) -> None:
        """Discard the state, which another leader continues."""
        self._jobs = {}

    def kept(self) -> Any:
        """Return the state to save."""
        return [one.kept() for one in self._jobs.values()]

    def restore(self, kept: Any) -> None:
        """Continue from the state that another watch saved, from nothing if it is None.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: it is invalid; the traces restart.
        """
        self._jobs = {}
        found = [restored(one) for one in kept or ()]
        self._jobs = {one.job_id: one for one in found}
