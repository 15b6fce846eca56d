"""What the account of a job's GPU time learns about it: from its report, records and series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from rankscope_agent.contract.metrics import pods
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Account, Look, Within
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.layers import rank_progress
from rankscope_analyzers.steps.job_records import JobRecords

PART_OF: Mapping[str, str] = {
    "gpu_compute": parts.STRAGGLER,
    "data_loader": parts.DATA,
    "network_link": parts.SYNC,
    "storage_checkpoint": parts.CHECKPOINT,
    "global_slowdown": parts.SLOWDOWN,
    "partition_imbalance": parts.STRAGGLER,
    "host_transient": parts.STRAGGLER,
}
"""The part that each kind of finding of step times belongs to."""


def look_of(
    report: JobReport,
    records: JobRecords | None,
    observed: Observed,
    hang_after_seconds: float,
    waiting: bool = False,
) -> Look:
    """Return the current observations of a job.

    Args:
        report: on the job.
        records: its step records, None without any.
        observed: series of its nodes.
        hang_after_seconds: least time without a step after which it is called hung.
        waiting: True if pods of it have no node.
    """
    now = report.made_unix_seconds
    ranks = rank_progress.read(observed, report.job_id, now)
    held = _held(observed, report.job_id)
    living = [rank for rank in ranks if rank.alive]
    started = [rank.started_unix_seconds for rank in ranks if rank.started_unix_seconds]
    ended = [rank.ended_unix_seconds for rank in ranks if rank.ended_unix_seconds]
    world = report.frame.world_size if report.frame else 0
    return Look(
        now=now,
        gpus=max(len(report.locations), world, held),
        records=None if records is None else records.records,
        started=min(started, default=None),
        ended=None if living else max(ended, default=None),
        alive=bool(living or held or any(rank.starting for rank in ranks)),
        hung_since=_hung_since(report),
        held=waiting,
        findings=tuple(_within(report)),
        hang_seconds=hang_after_seconds,
    )


def with_spent_time(
    report: JobReport,
    records: JobRecords | None,
    observed: Observed,
    hang_after_seconds: float,
) -> JobReport:
    """Return a running job's report with the account of its GPU time; others have none."""
    if records is None or not records.live:
        return report
    look = look_of(report, records, observed, hang_after_seconds)
    account = Account(awaited_start=True)  # there are no newer pages
    for _ in range(2):  # what follows the last step is accounted for after the steps
        made = attempt("report", report.job_id, partial(account.look, look))
        if isinstance(made, AnalysisError):
            return replace(report, errors=(*report.errors, made))
    return replace(report, spent=account.seconds)


def _held(observed: Observed, job_id: str) -> int:
    """Return how many GPUs pods of a job hold."""
    newest = max((one.times[-1] for one in observed.of(pods.GPU_ALLOCATION_INFO)), default=0.0)
    return len(
        {
            (one.node, one.labels.get("uuid", ""))
            for one in observed.of(pods.GPU_ALLOCATION_INFO, job_id=job_id)
            if newest - one.times[-1] < rank_progress.FRESH_SECONDS
        }
    )


def _hung_since(report: JobReport) -> float | None:
    standing = [one for one in report.incidents if one.stands and one.until_unix_seconds is None]
    return next((one.since_unix_seconds or -math.inf for one in standing), None)


def _within(report: JobReport) -> Iterator[Within]:
    for incident in report.incidents:
        part = PART_OF.get(incident.timing.kind, "") if incident.timing else ""
        if part:
            yield Within(*_span(incident), part)


def _span(incident: Incident) -> tuple[float, float]:
    since, until = incident.since_unix_seconds, incident.until_unix_seconds
    return -math.inf if since is None else since, math.inf if until is None else until
