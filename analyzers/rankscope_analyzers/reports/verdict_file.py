"""`rankscope diagnose --verdicts`: writes the verdicts on many traces, with progress on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rankscope_analyzers.command import InputError, check_folder
from rankscope_analyzers.steps import stored_traces
from rankscope_analyzers.steps.trace_directories import Directory
from rankscope_analyzers.stragglers import trace_verdicts
from rankscope_analyzers.stragglers.verdict_pools import SchedulerError


def run(
    directories: Sequence[Directory],
    path: Path,
    workers: int,
    console: Console,
    scheduler: str | None = None,
) -> int:
    """Judge the traces, write the file and summarise it.

    Args:
        directories: job directories, or directories of them.
        path: the file to write.
        workers: processes.
        console: for progress, notes and the summary.
        scheduler: address of a Dask cluster, None for processes.

    Returns:
        The exit code: 1 if a trace could not be analysed; the others are written all the same.

    Raises:
        InputError: the number of workers, a cluster that cannot be used, or a file that cannot be
            written.
        rankscope_analyzers.steps.job_records.SourceError: a directory holds no trace.
    """
    if workers < 1:
        raise InputError(f"--workers takes a number of at least 1, not {workers}")
    check_folder(path)
    directories = [
        job for directory in directories for job in stored_traces.job_directories(directory)
    ]
    columns = (
        TextColumn("judging traces"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(directories))
        try:
            judged = trace_verdicts.judge_all(
                directories, workers, lambda: progress.advance(task), scheduler
            )
        except SchedulerError as error:
            raise InputError(str(error)) from None
    try:
        trace_verdicts.write(path, judged)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    return _summarize(judged, path, console)


def _summarize(judged: Sequence[trace_verdicts.JobVerdicts], path: Path, console: Console) -> int:
    for job in judged:
        for note in job.notes:
            console.print(note, markup=False, soft_wrap=True)
    good = [job.verdicts for job in judged if job.verdicts is not None]
    count = sum(map(len, good))
    failed = len(judged) - len(good)
    console.print(
        f"{count} verdicts on {len(good)} jobs written to {path}"
        + (f"; {failed} traces could not be analysed" if failed else ""),
        markup=False,
        soft_wrap=True,
    )
    return 1 if failed else 0
