"""All jobs, one row each: state, step time, fraction of it that is lost, and to whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from rankscope_analyzers.findings.finding import Finding, Where
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.reports import job_summary
from rankscope_analyzers.text.name_lists import listed, ranks_named
from rankscope_analyzers.text.wording import duration

STATES: Mapping[str, str] = {
    "crash_loop": "crash loop",
    "image_not_pulled": "not started",
    "container_not_created": "not started",
    "pod_pending": "waiting",
    "pod_preempted": "preempted",
    "pod_failed": "failed",
    "attempt_failed": "failed",
    "missing_rank": "lost ranks",
    "rank_stopped": "stopped",
    "job_stalled": "stalled",
}
"""States of a job that findings determine, the one that explains most of its others first."""

TRAINING, SLOW, IMPAIRED, OVER, UNKNOWN = "training", "slow", "impaired", "ended", "unknown"
FINE = frozenset((TRAINING, OVER))


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job.

    Args:
        state: a word of `STATES` or of the constants next to it.
        step_seconds: its median step, None if steps were not measured.
        lost_fraction: the fraction of step time that its first incident takes, None without step
            times.
        culprit: whom that incident is about; empty without one, or if it is about all.
        kind: of that incident; empty without one.
        summary: the answer in one sentence.
    """

    job_id: str
    state: str
    step_seconds: float | None
    lost_fraction: float | None
    culprit: str
    kind: str
    summary: str


def rows(reports: Iterable[JobReport]) -> tuple[JobRow, ...]:
    """Return a row for each job, in the order of the reports."""
    return tuple(map(_row, reports))


def table(jobs: Sequence[JobRow]) -> Table:
    """Return the rows as a table; what is unknown is a dash."""
    drawn = Table(box=None, pad_edge=False)
    for name in ("job", "state", "step", "lost", "to", "why"):
        drawn.add_column(name, justify="right" if name in {"step", "lost"} else "left")
    for job in jobs:
        step = "-" if job.step_seconds is None else duration(job.step_seconds)
        lost = "-" if job.lost_fraction is None else f"{job.lost_fraction:.0%}"
        cells = (job.job_id, job.state, step, lost, job.culprit or "-", job.kind or "-")
        drawn.add_row(*map(escape, cells), style="" if job.state in FINE else "bold")
    return drawn


def _row(report: JobReport) -> JobRow:
    first = next((one for one in report.incidents if one.until_unix_seconds is None), None)
    cost = first.cost if first else None
    verdict = report.verdict
    return JobRow(
        job_id=report.job_id,
        state=_state(report, first),
        step_seconds=verdict.median_step_seconds if verdict else None,
        lost_fraction=cost.lost_fraction if cost else None,
        culprit=_named(first.where) if first else "",
        kind=first.cause.kind if first else "",
        summary=job_summary.headline(report),
    )


def _state(report: JobReport, first: Incident | None) -> str:
    """Return the job's state: that of its pods, then of its ranks, then of its steps."""
    found = {finding.kind for finding in _going_on(report)}
    for kind, state in STATES.items():
        if kind in found:
            return state
    if report.over is not None:
        return OVER
    if first is not None:
        return SLOW if first.cost and first.cost.lost_fraction > 0 else IMPAIRED
    if report.verdict is None or not report.verdict.confidence:
        return UNKNOWN
    return TRAINING


def _going_on(report: JobReport) -> list[Finding]:
    incidents = (finding for one in report.incidents for finding in (one.cause, *one.findings))
    everything = (*incidents, *report.observations)
    return [finding for finding in everything if finding.until_unix_seconds is None]


def _named(where: Where) -> str:
    """Name whom an incident is about: ranks and their nodes, or devices."""
    parts = (
        ranks_named(where.ranks) if where.ranks else "",
        f"node {listed(where.nodes)}" if where.nodes else "",
        f"GPU {listed(where.gpus)}" if where.gpus else "",
        listed(where.devices) if where.devices else "",
    )
    return ", ".join(part for part in parts if part)
