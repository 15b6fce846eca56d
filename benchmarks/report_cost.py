"""Cost of a report on 4,096 ranks: CPU seconds from records to page, and the page's size."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
from benchmarks.straggler_speed import trace

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence, reports
from rankscope_analyzers.reports import html as html_report
from rankscope_analyzers.reports import job_summary
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose_each

RANKS, STEPS, SLOW = 4096, 500, 2717
SLOWER_BY_SECONDS = 0.6
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class ReportCost:
    """CPU seconds of judging and of writing, medians, and the size of the page in bytes."""

    judging_seconds: float
    writing_seconds: float
    page_bytes: int


def measure() -> ReportCost:
    """Judge and write one job with one slow rank, several times."""
    records = _slow(trace(RANKS, STEPS))
    judging, writing, page = [], [], ""
    for _ in range(ROUNDS):
        begin = time.process_time()
        report = _judged(records)
        between = time.process_time()
        page = html_report.write([report])
        judging.append(between - begin)
        writing.append(time.process_time() - between)
    if job_summary.culprits(report)[:1] != (SLOW,):
        raise RuntimeError(f"rank {SLOW} is slow, found {job_summary.culprits(report)}")
    size = len(page.encode("utf-8"))
    return ReportCost(float(np.median(judging)), float(np.median(writing)), size)


def _judged(records: pd.DataFrame) -> JobReport:
    (report,) = reports(
        diagnose_each([JobRecords("big", records, RANKS, (), live=False)]), JobEvidence(), 1e9
    )
    return report


def _slow(records: pd.DataFrame) -> pd.DataFrame:
    """Let one rank of a data-parallel job compute longer in its second half, the others wait."""
    late = records["step"] >= STEPS // 2
    steps_late = np.maximum(records["step"] - STEPS // 2, 0)
    slow = late & (records["rank"] == SLOW)
    longer = np.where(late, SLOWER_BY_SECONDS, 0.0)
    return records.assign(
        compute_seconds=records["compute_seconds"] + np.where(slow, SLOWER_BY_SECONDS, 0.0),
        sync_seconds=records["sync_seconds"] + np.where(slow, 0.0, longer),
        step_seconds=records["step_seconds"] + longer,
        t_start_unix_seconds=records["t_start_unix_seconds"] + SLOWER_BY_SECONDS * steps_late,
        dp_group=0,
        tp_group=records["rank"],
        pp_stage=0,
    )


def report(cost: ReportCost) -> str:
    """Return the figures as text."""
    return "\n".join(
        [
            f"{RANKS} ranks, {STEPS} steps: judged in {cost.judging_seconds:.1f} s of CPU,"
            f" written in {cost.writing_seconds:.2f} s (goal 10 together)",
            f"the page has {cost.page_bytes / 1e6:.1f} MB (goal 8)",
        ]
    )
