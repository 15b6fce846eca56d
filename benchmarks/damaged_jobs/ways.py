"""The paths by which records become a verdict; anything that raises on one of them is reported.

Errors that the command confines to one job count as well: also for damaged records, it should
report what it cannot judge.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.diagnosed import diagnose
from rich.console import Console

from rankscope_analyzers.commands import watch
from rankscope_analyzers.commands.job_source import JobSource
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.step_history import StepHistory, step_answer
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.reports import html, job_json, job_table, markdown
from rankscope_analyzers.reports import terminal as terminal_report
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers import state
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJob, FollowedJobs
from rankscope_analyzers.text import finite_json
from rankscope_analyzers.watch.exporter import FindingsExporter

POLLS = 3
"""Looks of a watch at a job: each brings some more of its records."""

BLIND = "?"
"""What is reported of a job that has no answer."""


@dataclass(frozen=True, slots=True)
class DamagedJob:
    """A job with damaged records.

    Args:
        rows: columns of the wire, values of any type that JSON has.
        world_size: as its ranks report it, None if they do not.
        meta: metadata of its trace.
        damages: names of the damages.
    """

    name: str
    rows: pd.DataFrame
    world_size: int | None
    meta: Mapping[str, Any]
    damages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result for a job on one path.

    Args:
        reported: the class, None for nobody, `BLIND` if it reported that no verdict was possible.
        problem: what raised, empty for nothing.
    """

    reported: str | None
    problem: str = ""


def asked(job: DamagedJob) -> Result:
    """Query agents for a job and write its report in every format."""
    records = _read(job, job.rows)
    return BLIND_RESULT if records is None else _reported(diagnose_each([records]), job)


def watched(job: DamagedJob) -> Result:
    """Look at a job several times, each time with a state that was saved and loaded."""
    followed, exporter, problems = FollowedJobs(), FindingsExporter(), list[str]()
    log = ErrorLog(problems.append)
    for part in range(1, POLLS + 1):
        records = _read(job, job.rows.head(len(job.rows) * part // POLLS))
        if records is not None:
            watch.evaluate(JobSource(partial(_gathered, records), None, followed), exporter, log)
            followed = _passed_on(followed)
    page = exporter.text()
    if problems:
        return Result(BLIND, "\n".join(problems))
    classes = re.search(r'^rankscope_finding_active\{.*kind="(\w+)".*\} 1', page, re.MULTILINE)
    return Result(classes[1] if classes else None)


def traced(job: DamagedJob) -> Result:
    """Read a job as a trace with the command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / job.name
        folder.mkdir()
        (folder / "meta.json").write_text(json.dumps(job.meta), "utf-8")
        job.rows.drop(columns="job_id").to_csv(folder / "records.csv", index=False)
        reported, problem = diagnose([f"--trace={folder}"])
    if reported is None:
        refused = problem.startswith("exit code") and "Traceback" not in problem
        return BLIND_RESULT if refused else Result(BLIND, problem)
    (answer,) = reported.values()
    if answer["analysis_errors"]:
        return Result(BLIND, str(answer["analysis_errors"]))
    return Result(answer["verdict"]["class"])


WAYS: Mapping[str, Callable[[DamagedJob], Result]] = {
    "asked": asked,
    "watched": watched,
    "trace": traced,
}

BLIND_RESULT = Result(BLIND)


def results(job: DamagedJob) -> Iterator[tuple[str, Result]]:
    """Judge a job on every path; return the results by name."""
    return ((name, _result(way, job)) for name, way in WAYS.items())


def _result(way: Callable[[DamagedJob], Result], job: DamagedJob) -> Result:
    try:
        return way(job)
    except Exception:  # noqa: BLE001 - whatever raises is what is looked for
        return Result(BLIND, traceback.format_exc())


def _read(job: DamagedJob, rows: pd.DataFrame) -> JobRecords | None:
    """Return records as they come from an agent's response; None if it is refused as a whole."""
    document = {"columns": list(rows.columns), "rows": rows.to_numpy(dtype=object).tolist()}
    try:
        text = json.dumps(document, default=_plain)
        answer = step_answer("node-a:9877", 0.0, json.loads(text))
    except ValueError:
        return None
    history = StepHistory()
    table = history.add([answer], -np.inf)
    if table.empty:
        return None
    return JobRecords(job.name, table.drop(columns="agent"), job.world_size, (), live=True)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)


def _gathered(records: JobRecords) -> Gathered:
    return Gathered((records,), JobEvidence())


def _passed_on(followed: FollowedJobs) -> FollowedJobs:
    """Return the state of another watch that loads what this one saved."""
    jobs: dict[str, FollowedJob] = {}
    for name, job in followed.jobs():
        text = json.dumps(state.document(job), allow_nan=False)
        jobs[name] = state.loaded(json.loads(text))
    other = FollowedJobs()
    other.restore(jobs, followed.polls)
    return other


def _reported(timing: TimingResults, job: DamagedJob) -> Result:
    reports = job_reports.reports(timing, JobEvidence(), time.time())
    errors: Sequence[object] = [*timing.errors, *(one for job in reports for one in job.errors)]
    if errors:
        traces = "\n".join(str(getattr(one, "trace", one)) for one in errors)
        return Result(BLIND, traces)
    for report in reports:
        finite_json.text(job_json.as_object(report))
    html.write(reports)
    markdown.write(reports)
    console = Console(file=io.StringIO(), width=100)
    terminal_report.show(console, reports)
    console.print(job_table.table(job_table.rows(reports)))
    if not reports:
        return Result(BLIND, f"{job.name} is in no report")
    (report,) = reports
    if report.verdict is None:
        return BLIND_RESULT if report.missing else Result(BLIND, "no verdict, and no reason")
    return Result(report.verdict.cause.kind if report.verdict.cause else None)
