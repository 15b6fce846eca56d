"""`rankscope diagnose`: one verdict per job, from running agents, traces or profiler traces."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankscope_analyzers.arguments.diagnose import CORES
from rankscope_analyzers.captures import archive, contents
from rankscope_analyzers.command import (
    InputError,
    age_seconds,
    print_json,
    print_progress,
    print_remark,
)
from rankscope_analyzers.commands import connection
from rankscope_analyzers.commands.absent_job import NO_JOB, absent_job
from rankscope_analyzers.fusion import gather, job_reports, saved
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.spent_time import with_spent_time
from rankscope_analyzers.intake import node_notices
from rankscope_analyzers.intake.credentials import entry_of
from rankscope_analyzers.intake.prometheus_api import Prometheus
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.profiles import kineto_files
from rankscope_analyzers.reports import files as report_files
from rankscope_analyzers.reports import job_json, verdict_file
from rankscope_analyzers.reports import terminal as terminal_report
from rankscope_analyzers.steps import job_records, stored_traces
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.text.console import open_console

FAILURES: tuple[type[Exception], ...] = (
    *connection.FAILURES,
    archive.CaptureError,
    InputError,
    job_records.SourceError,
    RecordError,
)


def run(options: argparse.Namespace) -> int:
    """Print the verdicts, or write those on traces to a file.

    Returns:
        The exit code: 1 if no job could be judged because its step records could not be read.

    Raises:
        InputError: there is no such job, or an option cannot be used.
        rankscope_analyzers.intake.cluster.ClusterError: the cluster cannot be queried for its
            agents.
        rankscope_analyzers.steps.job_records.SourceError: the records cannot be read.
        rankscope_analyzers.steps.records.RecordError: the records cannot be analysed.
    """
    if options.verdicts:
        return _write(options)
    _check(options)
    gathered, now = _gathered(options)
    if options.save:
        with _saving():
            saved.write(options.save, gathered, now)
    timing = diagnose_each(job for job in gathered.jobs if options.job in {None, job.job_id})
    if timing.unusable and not (timing.diagnoses or timing.errors):
        raise RecordError("; ".join(f"job {job}: {why}" for job, why in timing.unusable.items()))
    hang_after = age_seconds(options.hang_after, "--hang-after")
    made = job_reports.reports(timing, gathered.evidence, now, options.job, hang_after)
    records = {job.job_id: job for job in gathered.jobs}
    reports = [
        with_spent_time(job, records.get(job.job_id), gathered.evidence.observed, hang_after)
        for job in made
        if options.job in {None, job.job_id}
    ]
    ErrorLog(print_remark).note([*gathered.errors, *(one for job in reports for one in job.errors)])
    if not reports:
        first = absent_job(options.job, gathered) if options.job else NO_JOB
        raise InputError("; ".join((first, *gathered.evidence.missing)))
    try:  # neither a full disk nor a closed pipe costs both
        report_files.write(options, reports)
    finally:
        if options.json:
            print_json({job.job_id: job_json.as_object(job) for job in reports})
        elif not report_files.printed(options):
            terminal_report.show(open_console(no_color=options.no_color), reports)
    # A missing verdict must not be mistaken for a verdict.
    return 1 if all(job.verdict is None and job.missing for job in reports) else 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that have no effect, and what cannot be written, before anything is read.

    Raises:
        InputError: that is so.
    """
    if options.workers is not None:
        raise InputError("--workers needs --verdicts: one job takes one process")
    if options.scheduler:
        raise InputError("--scheduler needs --verdicts: it is for many traces")
    report_files.check(options)
    if options.save:
        with _saving():
            saved.check(options.save)


def _write(options: argparse.Namespace) -> int:
    if not options.trace:
        raise InputError("--verdicts needs --trace: it judges whole traces, not running jobs")
    if options.job:
        raise InputError("--verdicts covers all jobs of --trace: leave out --job")
    if options.save or _saved(options):
        raise InputError("--verdicts takes whole traces: leave out --save and its directories")
    if options.html or options.markdown:
        raise InputError("--verdicts writes no report: leave out --html and --markdown")
    console = open_console(no_color=options.no_color, stderr=True)
    workers = CORES if options.workers is None else options.workers
    return verdict_file.run(options.trace, options.verdicts, workers, console, options.scheduler)


def _saved(options: argparse.Namespace) -> list[Path]:
    """Return the directories of --trace that --save wrote; they are read from disk."""
    on_disk = [one for one in options.trace or () if isinstance(one, Path)]
    return [directory for directory in on_disk if saved.is_saved(directory)]


@contextmanager
def _saving() -> Iterator[None]:
    """Convert what keeps a directory from being written to a message.

    Raises:
        InputError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"--save: {error}") from error


def _gathered(options: argparse.Namespace) -> tuple[Gathered, float]:
    """Return what was read, and the Unix time of the reading.

    Raises:
        InputError: a saved diagnosis is to be read together with others.
        rankscope_analyzers.captures.archive.CaptureError: a file is not a capture.
    """
    if options.capture:
        with tempfile.TemporaryDirectory(prefix="rankscope-capture-") as name:
            archive.read(options.capture, Path(name))
            return saved.read(Path(name) / contents.DIAGNOSIS)
    for directory in _saved(options):
        if len(options.trace) > 1:
            raise InputError("--trace reads a directory that --save wrote only on its own")
        return saved.read(directory)
    return _read(options), time.time()


def _read(options: argparse.Namespace) -> Gathered:
    if options.trace:
        return gather.of_files(stored_traces.from_traces, options.trace)
    if options.kineto:
        return gather.of_files(kineto_files.from_kineto, options.kineto)
    now = time.time()
    since = now - age_seconds(options.since, "--since")
    if options.prometheus:
        server = Prometheus(options.prometheus, entry_of(options))
        return gather.of_prometheus(server, options.job, since, now)
    targets = connection.chosen_targets(options)
    print_progress(f"Asking {targets.named}; jobs of many steps take up to a minute.")
    found = gather.of_agents(
        targets.urls,
        options.job,
        since,
        entry=targets.entry,
        cluster=targets.cluster,
        hang_after_seconds=age_seconds(options.hang_after, "--hang-after"),
    )
    if targets.cluster is None:
        return found
    notices = node_notices.from_cluster(connection.cluster_access(options), time.time())
    return gather.with_notices(found, notices)
