"""Verdicts on many trace directories, in the format in which analyzers of traces are compared.

    {"jobs": {"<job>": {"verdicts": [{"class", "detected_at_unix", "ranks", "pp_stage",
                                      "confidence", "lost_fraction"}]}}}

`detected_at_unix` is the record clock of the newest record that the verdict used: a trace cut
there gives the same verdict.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.steps import job_records, stored_traces
from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.steps.trace_directories import Directory
from rankscope_analyzers.stragglers import feed, verdict_pools
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.worker_memory import freed_memory_kept
from rankscope_analyzers.text import finite_json


@dataclass(frozen=True, slots=True)
class JobVerdicts:
    """The result for one trace directory.

    Args:
        job_id: name of the job.
        verdicts: its verdicts, None if the trace could not be analysed.
        notes: the reason, or the records that were left out, as sentences.
    """

    job_id: str
    verdicts: tuple[dict[str, Any], ...] | None
    notes: tuple[str, ...]


def judge_all(
    directories: Sequence[Directory],
    workers: int,
    done: Callable[[], None],
    scheduler: str | None = None,
) -> tuple[JobVerdicts, ...]:
    """Judge trace directories in several processes; return the verdicts in their order.

    Args:
        directories: of one job each.
        workers: processes; with one everything runs in this process.
        done: called after each directory.
        scheduler: address of a Dask cluster, whose workers replace processes.

    Raises:
        rankscope_analyzers.steps.job_records.SourceError: two directories hold a job of the same
            name.
        rankscope_analyzers.stragglers.verdict_pools.SchedulerError: the cluster cannot be used.
    """
    judged: dict[int, JobVerdicts] = {}
    for index, verdicts in _judged(directories, workers, scheduler):
        judged[index] = verdicts
        done()
    ordered = tuple(judged[index] for index in range(len(directories)))
    named: dict[str, Directory] = {}
    for job, directory in zip(ordered, directories, strict=True):
        if named.setdefault(job.job_id, directory) != directory:
            raise job_records.SourceError(
                f"{named[job.job_id]} and {directory} both hold job {job.job_id}"
            )
    return ordered


def _judged(
    directories: Sequence[Directory], workers: int, scheduler: str | None
) -> Iterator[tuple[int, JobVerdicts]]:
    if scheduler is None and (workers <= 1 or len(directories) <= 1):
        yield from ((index, judge(directory)) for index, directory in enumerate(directories))
        return
    used = min(workers, len(directories))
    with verdict_pools.cluster(scheduler) if scheduler else verdict_pools.processes(used) as pool:
        task = judge_on_worker if scheduler else judge
        numbers = {
            pool.submit(task, directory): index for index, directory in enumerate(directories)
        }
        for future in as_completed(numbers):
            directory = directories[numbers[future]]
            judged = attempt("timing", directory.name, future.result)  # a worker may be killed
            yield numbers[future], _or_note(judged, directory)


def judge(directory: Directory) -> JobVerdicts:
    """Judge one trace directory; errors become notes."""
    judged = attempt("timing", directory.name, partial(_judge_at_hand, directory))
    return _or_note(judged, directory)


def judge_on_worker(directory: Directory) -> JobVerdicts:
    """Judge one trace directory on a worker of a Dask cluster."""
    with freed_memory_kept():
        return judge(directory)


def _or_note(judged: JobVerdicts | AnalysisError, directory: Directory) -> JobVerdicts:
    if isinstance(judged, AnalysisError):
        return JobVerdicts(directory.name, None, (f"{directory}: {judged}", judged.trace))
    return judged


def _judge_at_hand(directory: Directory) -> JobVerdicts:
    try:
        with stored_traces.at_hand(directory) as folder:
            judged = _judge(folder)
    except job_records.SourceError as error:
        return JobVerdicts(directory.name, None, (str(error),))
    notes = tuple(stored_traces.as_stored(note, folder, directory) for note in judged.notes)
    return replace(judged, notes=notes)


def _judge(directory: Path) -> JobVerdicts:
    try:
        job = job_records.table(directory)
    except job_records.SourceError as error:
        return JobVerdicts(directory.name, None, (str(error),))
    try:
        # Values that were not measured, or took no time, are NaN here; NumPy's warnings would only
        # distract.
        with np.errstate(divide="ignore", invalid="ignore"):
            found = feed.detect(job.records, layout(job.meta, job.records.rank_count))
    except RecordError as error:
        return JobVerdicts(job.job_id, None, (f"{job.path}: {error}",))
    notes = tuple(f"{job.path}: {dropped}" for dropped in found.dropped)
    return JobVerdicts(
        job.job_id, tuple(as_object(incident) for incident in found.incidents), notes
    )


def as_object(incident: Incident) -> dict[str, Any]:
    """Return an incident as a verdict of the trace contract."""
    return {
        "class": incident.kind,
        "detected_at_unix": incident.detected_at,
        "ranks": list(incident.ranks),
        "pp_stage": incident.stage,
        "confidence": round(incident.confidence, 4),
        "lost_fraction": round(incident.lost_fraction, 6),
    }


def write(path: Path, judged: Sequence[JobVerdicts]) -> None:
    """Write the verdicts of all jobs that could be analysed, all or nothing.

    Raises:
        OSError: the file cannot be written.
    """
    jobs = {
        job.job_id: {"verdicts": list(job.verdicts)} for job in judged if job.verdicts is not None
    }
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(finite_json.text({"jobs": jobs}, indent=1) + "\n", "utf-8")
    unfinished.replace(path)
