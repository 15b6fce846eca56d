"""`rankscope jobs`: all jobs in a table, once or repeatedly."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from rankscope_analyzers.command import (
    LONGEST_SECONDS,
    InputError,
    age_seconds,
    print_json,
    print_progress,
    print_remark,
)
from rankscope_analyzers.commands import connection
from rankscope_analyzers.commands.absent_job import NO_JOB
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.intake.collective_windows import COMPARISON_SECONDS
from rankscope_analyzers.intake.credentials import entry_of
from rankscope_analyzers.intake.prometheus_api import Prometheus
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.reports import job_table
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.text.wording import clock

FAILURES: tuple[type[Exception], ...] = (
    *connection.FAILURES,
    InputError,
    SourceError,
    RecordError,
)

LEAST_SECONDS = 2.0
"""Shortest pause between two tables: agents read their sources every second."""


def run(options: argparse.Namespace) -> int:
    """Print the table.

    Raises:
        InputError: there is no job, or the interval is too short.
        rankscope_analyzers.intake.cluster.ClusterError: the cluster cannot be queried for its
            agents.
        rankscope_analyzers.steps.job_records.SourceError: no agent answers.
    """
    if options.refresh is not None and not LEAST_SECONDS <= options.refresh <= LONGEST_SECONDS:
        raise InputError(
            f"--refresh takes {LEAST_SECONDS:g} seconds or more, not {options.refresh}"
        )
    if options.refresh is not None and options.json:
        raise InputError("--json prints one object: leave out --refresh")
    earlier, errors = gather.EarlierPolls(COMPARISON_SECONDS), ErrorLog(print_remark)
    jobs, missing = _jobs(options, earlier, errors)
    if not jobs and options.refresh is None:
        raise InputError("; ".join((NO_JOB, *missing)))
    # As in `diagnose`: a missing answer must not be mistaken for an answer.
    code = 1 if missing and all(job.state == job_table.UNKNOWN for job in jobs) else 0
    if options.json:
        print_json({job.job_id: asdict(job) for job in jobs})
        for sentence in missing:
            print_remark(f"Not seen: {sentence}.")
        return code
    console = open_console(no_color=options.no_color)
    _show(console, jobs, missing)
    while options.refresh is not None:
        time.sleep(options.refresh)
        try:
            jobs, missing = _jobs(options, earlier, errors)
        except FAILURES as error:  # an agent that restarts, a server that is replaced
            print_remark(f"{error}")
            continue
        console.clear()
        _show(console, jobs, missing)
    return code


def _show(console: Console, jobs: Sequence[job_table.JobRow], missing: Sequence[str]) -> None:
    console.print(f"{len(jobs)} job{'s' * (len(jobs) != 1)} at {clock(time.time())}")
    console.print(job_table.table(jobs), crop=False)
    if any(job.state == job_table.UNKNOWN for job in jobs):
        console.print("`rankscope diagnose --job JOB` says why a state is unknown.")
    for sentence in missing:
        console.print(f"Not seen: {sentence}.", markup=False, highlight=False)


def _jobs(
    options: argparse.Namespace, earlier: gather.EarlierPolls, errors: ErrorLog
) -> tuple[tuple[job_table.JobRow, ...], tuple[str, ...]]:
    """Return the rows, and what could not be seen of any of them."""
    found = _gathered(options, earlier)
    timing = diagnose_each(found.jobs)
    reports = job_reports.reports(timing, found.evidence, time.time())
    errors.note([*found.errors, *(one for job in reports for one in job.errors)])
    return job_table.rows(reports), tuple(found.evidence.missing)


def _gathered(options: argparse.Namespace, earlier: gather.EarlierPolls) -> Gathered:
    now = time.time()
    since = now - age_seconds(options.since, "--since")
    if options.prometheus:
        server = Prometheus(options.prometheus, entry_of(options))
        return gather.of_prometheus(server, None, since, now)
    targets = connection.chosen_targets(options)
    if not earlier.pages.polls:
        print_progress(f"Asking {targets.named}; jobs of many steps take up to a minute.")
    return gather.of_agents(
        targets.urls, None, since, targets.entry, earlier, cluster=targets.cluster
    )
