"""The diagnosis of a job that is gone, from what agents kept when it stood still."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.agent_evidence import (
    Answers,
    kept_pages,
    kept_stalls,
    kept_steps,
)
from rankscope_analyzers.intake.page_history import Page, PageHistory
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose_each

SOURCE = "what agents kept when the job stood"


@dataclass(frozen=True, slots=True)
class CapturedDiagnosis:
    """The inputs of a capture; `pages` has the first look's pages, then the second's.

    Args:
        made_unix_seconds: when the last of it was recorded, by the nodes' clocks.
    """

    gathered: Gathered
    report: JobReport
    pages: tuple[Page, ...]
    made_unix_seconds: float


def diagnosis(kept: Answers, job_id: str, hang_after_seconds: float) -> CapturedDiagnosis | None:
    """Return the report on a job from what was kept of it; None if that shows nothing."""
    looks = first, second = kept_pages(kept)
    if not first:
        return None
    history = PageHistory(job_reports.READS, len(looks))
    for pages in looks:
        history.add(pages)
    stalls = {job_id: list(kept_stalls(kept))}
    seen = history.observed(SOURCE)
    evidence = JobEvidence(seen, sources=(SOURCE,), stalls=stalls)
    made = max(page.time for page in (*first, *second))
    jobs = _jobs(kept, job_id)
    timing = diagnose_each(jobs)
    reports = job_reports.reports(timing, evidence, made, job_id, hang_after_seconds)
    report = next((one for one in reports if one.job_id == job_id), None)
    if report is None:
        return None
    return CapturedDiagnosis(Gathered(jobs, evidence), report, (*first, *second), made)


def _jobs(kept: Answers, job_id: str) -> tuple[JobRecords, ...]:
    """Return the job's records; none if the agents were older, or it made no step."""
    records = kept_steps(kept, job_id)
    sizes = (stall.world_size for stall in kept_stalls(kept) if stall.job_id == job_id)
    size = max((one for one in sizes if one is not None), default=None)
    return () if records.empty else (JobRecords(job_id, records, size, (), live=True),)
