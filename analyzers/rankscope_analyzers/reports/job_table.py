"""All jobs, one row each: state, step time, fraction of it that is lost, and to whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from rankscope_analyzers.findings.finding import Finding, Where
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.reports import job_summary
from rankscope_analyzers.text.name_lists import listed, ranks_named
from rankscope_analyzers.text.wording import duration

FAILED = "failed"

STATES: Mapping[str, str] = {
    "crash_loop": "crash loop",
    "image_not_pulled": "not started",
    "container_not_created": "not started",
    "pod_pending": "waiting",
    "pod_preempted": "preempted",
    "pod_failed": FAILED,
    "attempt_failed": FAILED,
    "missing_rank": "lost ranks",
    "rank_stopped": "stopped",
    "job_stalled": "stalled",
    "job_ending": "ending",
}
"""States of a job that findings determine, the one that explains most of its others first."""

TRAINING, SLOW, HUNG, IMPAIRED = "training", "slow", "hung", "impaired"
OVER, UNKNOWN = "ended", "unknown"
FINE = frozenset((TRAINING, "ending", OVER))

HEADS = ("job", "state", "step", "lost", "to", "why")

WIDEST = 128
"""Characters of a cell that is not folded, such as a UUID or most namespace/name: no job of a very
long name makes all rows too wide."""


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
    """Return the rows as a table; what is unknown is a dash.

    It is as wide as it needs to be, whatever the terminal: names are there to be copied.
    """
    drawn = Table(box=None, pad_edge=False)
    cells = [_cells(job) for job in jobs]
    for name, *column in zip(HEADS, *cells, strict=True):
        width = min(max(map(cell_len, (name, *column))), WIDEST)
        is_number = name in {"step", "lost"}
        justify: Literal["left", "right"] = "right" if is_number else "left"
        drawn.add_column(name, justify=justify, overflow="fold", min_width=width)
    for job, row in zip(jobs, cells, strict=True):
        drawn.add_row(*map(escape, row), style="" if job.state in FINE else "bold")
    return drawn


def _cells(job: JobRow) -> tuple[str, ...]:
    step = "-" if job.step_seconds is None else duration(job.step_seconds)
    lost = "-" if job.lost_fraction is None else f"{job.lost_fraction:.0%}"
    return job.job_id, job.state, step, lost, job.culprit or "-", job.kind or "-"


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
        return FAILED if any(one.ended_job for one in report.incidents) else OVER
    if first is not None and first.stands:
        return HUNG
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
