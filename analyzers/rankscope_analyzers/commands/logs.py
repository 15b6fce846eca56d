"""`rankscope logs`: the logs of all ranks of a job merged, or its errors, the earliest first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rankscope_analyzers.command import InputError, age_seconds, print_json
from rankscope_analyzers.commands import connection
from rankscope_analyzers.intake import job_pods, log_sources
from rankscope_analyzers.intake.cluster import ClusterError
from rankscope_analyzers.intake.log_files import LogError, tell_user
from rankscope_analyzers.logs import job_errors, merged_logs
from rankscope_analyzers.logs.failure_report import sentence
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.text.wording import instant

FAILURES: tuple[type[Exception], ...] = (ClusterError, InputError, LogError)

TAB = "    "


def run(options: argparse.Namespace) -> int:
    """Print the lines.

    Raises:
        InputError: neither a job nor a file was given, or flags exclude each other.
        ClusterError: the API server does not answer, or knows no such job.
        LogError: a file cannot be read.
    """
    if (options.job or options.cluster) and options.paths:
        raise InputError("give the JOB of a cluster, or files with --from PATH, not both")
    if not (options.job or options.paths):
        raise InputError("give the JOB of a cluster, or files with --from PATH")
    if options.paths and (options.since is not None or options.tail is not None):
        raise InputError("--since and --tail are for logs of a cluster, not for files with --from")
    if options.json and not options.errors:
        raise InputError("--json needs --errors: merged logs have no end")
    with _opened(options) as (logs, not_read):
        if options.errors:
            return _errors(logs, not_read, as_json=options.json)
        for line in merged_logs.merged(logs):
            sys.stdout.write(f"{_shown(line)}\n")
    return 0


Logs = Mapping[str, Iterable[bytes]]
"""Chunks of bytes of each log, by name."""


@contextmanager
def _opened(options: argparse.Namespace) -> Iterator[tuple[Logs, Sequence[str]]]:
    """Yield the logs, and sentences about what cannot be read: of files, once they are read."""
    if options.paths:
        not_read: list[str] = []

        def tell(sentence: str) -> None:
            not_read.append(sentence)
            tell_user(sentence)

        yield log_sources.opened(options.paths, tell), not_read
        return
    access = replace(connection.cluster_access(options), instead="give files with --from PATH")
    since = None if options.since is None else int(age_seconds(options.since, "--since"))
    found = job_pods.logs_of(options.job, access)
    with job_pods.copied(found, access, since, options.tail) as copied:
        for failure in copied.failures:
            sys.stderr.write(f"{visible(failure)}\n")
        if not copied.files:
            raise ClusterError(f"no log of job {options.job} could be read")
        files = {name: str(path) for name, path in copied.files.items()}
        yield log_sources.together(files), copied.failures


def _errors(logs: Logs, not_read: Sequence[str], *, as_json: bool) -> int:
    found = job_errors.read(logs)
    if as_json:
        print_json({**job_errors.as_object(found), "not_read": list(not_read)})
        return 0
    if not found.attempts:
        sys.stdout.write(f"{sentence(None, found.unexplained, not_read)}\n")
    for one in found.attempts:
        sys.stdout.write(f"attempt {one.attempt.number}: {visible(one.sentence)}\n")
        for sign in one.errors:
            at = sign.location
            rank = None if at.local else at.rank
            where = f"{at.source}:{at.line}" if at.line else at.source
            text = f"{sign.text} ({sign.frame})" if sign.frame else sign.text
            line = merged_logs.LogLine(at.time, where, rank, text)
            sys.stdout.write(f"  {_shown(line)}\n")
    return 0


def _shown(line: merged_logs.LogLine) -> str:
    """Return a line in which every character is visible, with its time in UTC."""
    rank = "" if line.rank is None else f" rank {line.rank}"
    text = visible(line.text.replace("\t", TAB), merged_logs.MAX_LINE)
    return f"{instant(line.at)} {visible(line.source)}{rank}: {text}"
