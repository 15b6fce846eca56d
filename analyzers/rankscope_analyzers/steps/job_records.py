"""Step records of jobs from any source, and of trace directories on disk.

Reading only; `frames.build` interprets what is read. A source that cannot be read is named: in a
note on the verdict if others remain, in a `SourceError` if none does.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import pandas as pd

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.steps import record_files
from rankscope_analyzers.steps.beside_steps import BesideSteps
from rankscope_analyzers.steps.tables import FrameTable, RecordTable

MAX_META_BYTES = 1 << 26
"""Largest meta.json: a hundred times that of a job of 16,384 ranks with a line for each."""


MAX_ENTRIES = 100_000
"""Entries of a directory that is searched for traces: one job for every hour of eleven years."""


class SourceError(Exception):
    """Nothing could be read; the message gives the source and the reason.

    Args:
        failed: True if there was something that could not be read, False if there was nothing to
            read.
        errors: of sources that made an analyzer raise.
    """

    def __init__(
        self, message: str, failed: bool = True, errors: tuple[AnalysisError, ...] = ()
    ) -> None:
        super().__init__(message)
        self.failed = failed
        self.errors = errors


@dataclass(frozen=True, slots=True)
class JobRecords:
    """The step records of one job.

    Args:
        records: columns of the trace contract, rows in any order.
        world_size: ranks that the job should have, None if unknown.
        notes: what could not be read, as sentences.
        live: read from agents, so that only the newest run is of interest.
        meta: the trace's metadata on the job's layout, empty for agents.
        path: the file of records or its address, None for agents.
        windows: of collectives, as agents sample them from Flight Recorders.
        start: first records of the job, earlier than those that were asked for; None if none are
            known or an earlier look returned them.
        beside: what its ranks did outside of steps, as far as probes mark it.
        without_gpus: nodes on which no GPU is known.
        gpus_of_ranks: the indices of the GPUs that ranks use, by rank and node, as pages show them;
            empty of those that may use any.
    """

    job_id: str
    records: pd.DataFrame
    world_size: int | None
    notes: tuple[str, ...]
    live: bool
    meta: Mapping[str, Any] = field(default_factory=dict)
    path: Path | str | None = None
    windows: tuple[Mapping[str, Any], ...] = ()
    start: pd.DataFrame | None = None
    beside: tuple[BesideSteps, ...] = ()
    without_gpus: frozenset[str] = frozenset()
    gpus_of_ranks: Mapping[tuple[int, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of jobs.

    Args:
        jobs: their step records.
        failures: a sentence for each source that gave none; also among the notes of the jobs.
        errors: of sources that made an analyzer raise.
    """

    jobs: tuple[JobRecords, ...] = ()
    failures: tuple[str, ...] = ()
    errors: tuple[AnalysisError, ...] = ()


Folder = TypeVar("Folder")


def each(job_folders: Sequence[Folder], read: Callable[[Folder], JobRecords]) -> Read:
    """Read directories of one job each, each one separately.

    Raises:
        SourceError: none can be read, or two of them hold a job of the same name.
    """
    named: dict[str, Folder] = {}
    jobs: list[JobRecords] = []
    failures: list[str] = []
    errors: list[AnalysisError] = []
    for folder in job_folders:
        job = attempt("source", str(folder), partial(_job_or_reason, read, folder))
        if isinstance(job, JobRecords):
            jobs.append(job)
            if named.setdefault(job.job_id, folder) != folder:
                raise SourceError(f"{named[job.job_id]} and {folder} both hold job {job.job_id}")
            continue
        errors.extend([job] if isinstance(job, AnalysisError) else [])
        failures.append(job if isinstance(job, str) else f"{folder}: {job}")
    if not jobs:
        raise SourceError("; ".join(failures), errors=tuple(errors))
    noted = tuple(replace(job, notes=(*job.notes, *failures)) for job in jobs)
    return Read(noted, tuple(failures), tuple(errors))


def _job_or_reason(read: Callable[[Folder], JobRecords], folder: Folder) -> JobRecords | str:
    try:
        return read(folder)
    except SourceError as error:
        return str(error)


def job_directories(directory: Path) -> list[Path]:
    """Return a directory that holds a trace, or the directories in it that do, by name.

    Raises:
        SourceError: there is none, or one cannot be read.
    """
    try:
        return _job_directories(directory)
    except OSError as error:
        where = error.filename or directory
        raise SourceError(f"{where} cannot be read: {error.strerror or error}") from error


def _job_directories(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise SourceError(f"{directory} is not a directory; --trace takes job directories")
    if _record_file(directory):
        return [directory]
    entries = list(islice(directory.iterdir(), MAX_ENTRIES + 1))
    if len(entries) > MAX_ENTRIES:
        raise SourceError(too_many_entries(directory))
    jobs = sorted(path for path in entries if path.is_dir() and _record_file(path))
    if not jobs:
        raise SourceError(
            f"{directory} holds no trace: expected one of {', '.join(record_files.READERS)}"
        )
    return jobs


def too_many_entries(directory: object, or_else: str = "") -> str:
    """Return the error message for a directory that is too large to be searched for traces."""
    return (
        f"{directory} holds over {MAX_ENTRIES:,} files and directories{or_else}: give --trace the"
        " directories of single jobs"
    )


def _record_file(directory: Path) -> Path | None:
    return next(
        (directory / name for name in record_files.READERS if (directory / name).is_file()), None
    )


NO_PYARROW = "{} cannot be read without pyarrow: pip install 'rankscope[analyzers]'"


@dataclass(frozen=True, slots=True)
class TraceTable:
    """A trace whose records are read when they are needed.

    Args:
        path: the file of records.
    """

    job_id: str
    path: Path
    records: RecordTable
    meta: Mapping[str, Any]


def trace(directory: Path) -> JobRecords:
    """Read the trace that a directory holds.

    Raises:
        SourceError: it cannot be read.
    """
    meta, path = _trace_files(directory)
    world_size = meta.get("world_size")
    return JobRecords(
        job_id=str(meta.get("job", directory.name)),
        records=_whole(path),
        world_size=world_size if isinstance(world_size, int) and world_size > 0 else None,
        notes=(),
        live=False,
        meta=meta,
        path=path,
    )


def table(directory: Path) -> TraceTable:
    """Open the trace that a directory holds; only a part of a Parquet file is in memory at once.

    Raises:
        SourceError: it cannot be read.
    """
    meta, path = _trace_files(directory)
    job_id = str(meta.get("job", directory.name))
    if path.suffix != ".parquet":
        return TraceTable(job_id, path, FrameTable(_whole(path)), meta)
    try:
        from rankscope_analyzers.steps.parquet import ParquetTable
    except ImportError:
        raise SourceError(NO_PYARROW.format(path)) from None
    try:
        records = ParquetTable(path)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read as step records: {error}") from error
    return TraceTable(job_id, path, records, meta)


def _trace_files(directory: Path) -> tuple[dict[str, Any], Path]:
    meta = _meta(directory / "meta.json")
    path = _record_file(directory)
    if path is None:
        raise SourceError(
            f"{directory} holds no trace: expected one of {', '.join(record_files.READERS)}"
        )
    return meta, path


def _whole(path: Path) -> pd.DataFrame:
    try:
        records = record_files.read(path)
    except ImportError:
        raise SourceError(NO_PYARROW.format(path)) from None
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zlib.error, BadZipFile) as error:
        raise SourceError(f"{path} cannot be read as step records: {error}") from error
    if records.empty:
        raise SourceError(f"{path} holds no step records")
    return records


def _meta(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > MAX_META_BYTES:
            raise ValueError(f"{size:,} bytes, and at most {MAX_META_BYTES:,} are read")
        meta = untrusted_json.read(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(meta, dict) or meta.get("format_version", 1) != 1:
        raise SourceError(f"{path} is not trace metadata of format version 1")
    return meta
