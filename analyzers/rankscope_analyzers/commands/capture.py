"""`rankscope capture`: keeps what is known of a job now in one file, before anybody ends it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import shtab

from rankscope_analyzers.captures import archive, contents
from rankscope_analyzers.command import InputError, age_seconds
from rankscope_analyzers.commands import connection
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.steps import job_records
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.text.plain_lines import shown

FAILURES: tuple[type[Exception], ...] = (
    *connection.FAILURES,
    InputError,
    job_records.SourceError,
    RecordError,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare whom to ask, of which job, and where the capture goes."""
    connection.add_arguments(parser)
    parser.add_argument("--job", metavar="ID", required=True, help="the job")
    output: Any = parser.add_argument(
        "file", type=Path, metavar="FILE", help="the capture, a new file: capture.tar.gz"
    )
    output.complete = shtab.FILE
    parser.add_argument(
        "--since", default="1h", metavar="AGE", help="how far back to look (default %(default)s)"
    )
    connection.add_hang_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Ask the job's agents and write the capture.

    Raises:
        InputError: there is no such job, or the file cannot be written.
        rankscope_analyzers.intake.cluster.ClusterError: the cluster cannot be asked for its agents.
        rankscope_analyzers.steps.job_records.SourceError: nothing can be read.
    """
    if options.file.exists() or options.file.is_symlink():
        raise InputError(f"{options.file} exists: a capture is a new file")
    targets = connection.chosen_targets(options)
    since = time.time() - age_seconds(options.since)
    hang_after = age_seconds(options.hang_after)
    found = gather.of_agents(
        targets.urls, options.job, since, entry=targets.entry, cluster=targets.cluster
    )
    timing = diagnose_each(job for job in found.jobs if job.job_id == options.job)
    now = time.time()
    made = job_reports.reports(timing, found.evidence, now, options.job, hang_after)
    report = next((one for one in made if one.job_id == options.job), None)
    if report is None:
        raise InputError(f"there is no job {options.job!r} in what was read")
    first = found.poll.pages if found.poll else ()
    again, _ = agent_pages.pages(list(found.poll.agents.values()) if found.poll else [])
    _write(options.file, contents.files(found, report, [*first, *again], now), report)
    return 0


def _write(path: Path, files: Mapping[str, bytes], report: JobReport) -> None:
    try:
        left_out = archive.write(path, files, contents.about(report, version("rankscope")))
    except OSError as error:
        raise InputError(f"the capture cannot be written: {error}") from error
    size = path.stat().st_size
    sys.stdout.write(f"{path}: {len(files) - len(left_out)} files, {size:,} bytes\n")
    sys.stdout.write(f"{shown(files['summary.txt'].decode().rstrip())}\n")
    if left_out:
        sys.stdout.write(f"Left out for its size: {', '.join(left_out[:8])}\n")
