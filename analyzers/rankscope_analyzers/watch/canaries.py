"""What the watch exports about canaries, separate from all that it exports about jobs.

A canary is judged like any job. Its incidents open no alert, no webhook and no account of GPU time;
two series show up to which of its steps the watch has come, and whom it named there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from rankscope_agent.contract.canary import is_canary, without_run
from rankscope_agent.contract.metrics import canary as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.finding_series import symptom
from rankscope_analyzers.watch.incident_history import running

REMEMBERED_SECONDS = 86400.0
"""Canaries run every hour; one whose steps are older than a day was removed."""

MOST_CANARIES = 16
"""A cluster has one, or one for each of a few namespaces; the oldest are dropped first."""

MOST_NAMED = 8
"""Pairs of symptom and rank of one canary; a working chain names one."""


class Canaries:
    """Remembers when canaries were seen, and who was named."""

    def __init__(self) -> None:
        self._steps: dict[str, float] = {}
        self._named: dict[str, dict[tuple[str, int], float]] = {}

    def take(self, reports: Sequence[JobReport], now: float) -> list[JobReport]:
        """Record the reports on canaries among those on all jobs; return the others.

        Args:
            reports: of one evaluation.
            now: Unix time of it.
        """
        for report in reports:
            if is_canary(report.job_id):
                self._note(report)
        self._forget(now)
        return [report for report in reports if not is_canary(report.job_id)]

    def samples(self) -> Iterator[Sample]:
        """Yield the series of all canaries."""
        for job_id, at in self._steps.items():
            yield metrics.CANARY_STEP.sample(at, job_id=inert(job_id))
            for (shown, rank), named_at in self._named[job_id].items():
                yield metrics.CANARY_NAMED.sample(
                    named_at, job_id=inert(job_id), symptom=shown, rank=str(rank)
                )

    def stand_by(self) -> None:
        """Discard all observations: another watch leads."""
        self._steps, self._named = {}, {}

    def _note(self, report: JobReport) -> None:
        newest = _newest_step(report)
        if newest is None:
            return
        shown = map(symptom, running(report))
        named = {(one.kind, one.where.ranks[0]): newest for one in shown if one and one.where.ranks}
        job_id = without_run(report.job_id)
        before = self._named.pop(job_id, {})
        self._steps[job_id] = max(newest, self._steps.pop(job_id, newest))
        latest = {key: max(named.get(key, 0.0), before.get(key, 0.0)) for key in [*named, *before]}
        self._named[job_id] = dict(islice(latest.items(), MOST_NAMED))

    def _forget(self, now: float) -> None:
        old = [job_id for job_id, at in self._steps.items() if now - at > REMEMBERED_SECONDS]
        for job_id in [*old, *list(self._steps)[:-MOST_CANARIES]]:
            self._steps.pop(job_id, None)
            self._named.pop(job_id, None)


def _newest_step(report: JobReport) -> float | None:
    """Return when the newest step that a report is based on began, None if it has none."""
    starts = np.empty(0) if report.frame is None else report.frame.starts[-1:]
    known = starts[np.isfinite(starts)]
    return float(known.max()) if known.size else None
