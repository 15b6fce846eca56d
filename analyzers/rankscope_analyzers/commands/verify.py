"""`rankscope verify JOB`: does a running job take the fast path, and train as it should?"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from rankscope_agent.contract.nccl.facts import Facts
from rankscope_analyzers.checkpoints.directory_report import DirectoryReport, examine
from rankscope_analyzers.command import (
    InputError,
    age_seconds,
    check_text,
    print_json,
    print_progress,
    print_remark,
    write_text,
)
from rankscope_analyzers.commands import connection
from rankscope_analyzers.commands.absent_job import absent_job
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.intake.collective_windows import COMPARISON_SECONDS
from rankscope_analyzers.intake.log_files import LogError
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.logs import nccl_explanation
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.verification import evidence as job_evidence
from rankscope_analyzers.verification import report
from rankscope_analyzers.verification.criteria import results
from rankscope_analyzers.verification.identifiers import CHECKPOINT
from rankscope_analyzers.verification.report import Verification

FAILURES: tuple[type[Exception], ...] = (
    *connection.FAILURES,
    InputError,
    LogError,
    RecordError,
    SourceError,
)

PAUSE_SECONDS = 5.0
"""Seconds between two looks of --wait: agents read their sources every second, and a look takes
three."""

Logs = tuple[Facts, list[str]] | None
"""The content of NCCL's logs, and the files' names."""


def run(options: argparse.Namespace) -> int:
    """Print the results of the criteria; 0 all met, 2 one broken, 3 not yet or unknown.

    Raises:
        InputError: an option cannot be used, or the JUnit file cannot be written.
        rankscope_analyzers.intake.log_files.LogError: a log cannot be read.
        rankscope_analyzers.intake.cluster.ClusterError: the cluster cannot be queried for its
            agents.
        rankscope_analyzers.steps.job_records.SourceError: no agent answers.
    """
    patience = age_seconds(options.wait, "--wait") if options.wait else 0.0
    if options.junit:
        check_text(options.junit)
    logs: Logs = None
    if options.nccl_log:
        logs = nccl_explanation.read(options.nccl_log), options.nccl_log
    one = _verified(options, logs, time.monotonic() + patience)
    try:  # neither a full disk nor a closed pipe costs both
        if options.junit:
            write_text(options.junit, report.junit(one))
    finally:
        _show(one, options)
    return report.EXIT_CODES[one.answer]


def _show(one: Verification, options: argparse.Namespace) -> None:
    if options.json:
        print_json(one.as_object())
    else:
        console = open_console(no_color=options.no_color)
        console.print(report.table(one))
        console.print(report.summary(one), markup=False, highlight=False)


def _verified(options: argparse.Namespace, logs: Logs, deadline: float) -> Verification:
    """Look until the answer is final or the deadline has passed.

    Raises:
        InputError: there is no such job.
    """
    earlier = gather.EarlierPolls(COMPARISON_SECONDS, job_evidence.READS)
    errors = ErrorLog(print_remark)
    patience = f" for up to {options.wait}" if options.wait else ""
    print_progress(f"Looking at job {options.job}{patience}; many steps take up to a minute.")
    while True:
        try:
            found = _look(options, logs, earlier, errors)
        except SourceError:
            if time.monotonic() >= deadline:
                raise
            found = ()  # agents that start, or a job that does not exist yet
        is_late = time.monotonic() >= deadline
        if isinstance(found, Verification):
            if is_late or not found.may_change:
                return found
        elif is_late:
            raise InputError("; ".join(found) or f"nothing was read of job {options.job!r}")
        time.sleep(PAUSE_SECONDS)


def _look(
    options: argparse.Namespace, logs: Logs, earlier: gather.EarlierPolls, errors: ErrorLog
) -> Verification | tuple[str, ...]:
    """Return the present results of the criteria; sentences on why not if no job is seen."""
    targets = connection.chosen_targets(options)
    since = time.time() - age_seconds(options.since, "--since")
    read = gather.of_agents(
        targets.urls, options.job, since, targets.entry, earlier, cluster=targets.cluster
    )
    timing = diagnose_each(job for job in read.jobs if job.job_id == options.job)
    made = job_reports.reports(timing, read.evidence, time.time(), options.job)
    job = next((one for one in made if one.job_id == options.job), None)
    errors.note([*read.errors, *(job.errors if job else ())])
    if job is None:
        return absent_job(options.job, read), *read.evidence.missing
    settings = job_evidence.Settings(
        options.world_size,
        options.step_seconds,
        options.utilization,
        options.transport,
        frozenset(options.require),
    )
    evidence = job_evidence.evidence(
        job, read.evidence.observed, settings, logs, read.evidence.missing
    )
    if options.checkpoint_dir and CHECKPOINT not in options.skip:
        evidence = replace(evidence, checkpoints=_checkpoints(options.checkpoint_dir))
    found = list(results(evidence, options.skip))
    return Verification(options.job, found, settings.required)


def _checkpoints(folder: Path) -> DirectoryReport | str:
    """Return what a directory of checkpoints holds, or why it cannot be listed."""
    try:
        return examine(folder)
    except OSError as error:
        return f"{folder} cannot be listed: {error.strerror}"
