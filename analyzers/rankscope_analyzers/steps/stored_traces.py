"""Trace directories on disk or in an object store, which is read through fsspec.

The files of a stored directory are copied to disk, read like any other and removed: verdicts are
the same, and the bounds of `record_files` apply. The number of bytes copied is bounded too, and so
is the listing: in a directory that is too large to list, only the known names are looked up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.steps import job_records, record_files
from rankscope_analyzers.steps.job_records import (
    MAX_ENTRIES,
    JobRecords,
    Read,
    SourceError,
    too_many_entries,
)
from rankscope_analyzers.steps.trace_directories import Directory, StoredDirectory

META = "meta.json"
SAVED = "evidence.json"

MAX_FILE_BYTES = 1 << 34
"""Size of a file of records that is copied: four times the largest that is read whole."""

CHUNK_BYTES = 1 << 22

LISTING_SECONDS = 60.0
"""Longest listing: stores list a thousand names at a time, ten or twenty times a second."""

MAX_NAME_CHARACTERS = 255
"""Limit for the name of a directory on disk."""

PACKAGES: Mapping[str, tuple[str, str]] = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
    "az": ("adlfs", "azure"),
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
}
"""Scheme of a store: the package that fsspec reads it with, and the extra that installs it."""


def job_directories(where: Directory) -> Sequence[Directory]:
    """Return a directory that holds a trace, or the directories in it that do, by name.

    Raises:
        SourceError: there is none, or the store cannot be read.
    """
    if isinstance(where, Path):
        return job_records.job_directories(where)
    jobs = attempt("source", where.url, partial(_jobs_or_reason, where))
    if isinstance(jobs, AnalysisError):
        raise SourceError(f"{where} cannot be read: {jobs}", errors=(jobs,))
    if isinstance(jobs, SourceError):
        raise jobs
    return jobs


def from_traces(directories: Sequence[Directory]) -> Read:
    """Read job directories, or directories of job directories, in the format of the contract.

    Raises:
        SourceError: a directory is missing or holds no trace, no trace can be read, or two of
            them hold a job of one name.
    """
    jobs = [job for where in directories for job in job_directories(where)]
    return job_records.each(jobs, trace)


def trace(where: Directory) -> JobRecords:
    """Read the trace that a directory holds.

    Raises:
        SourceError: it cannot be read.
    """
    with at_hand(where) as folder:
        try:
            job = job_records.trace(folder)
        except SourceError as error:
            raise SourceError(as_stored(str(error), folder, where), errors=error.errors) from None
    return job if where == folder else replace(job, path=f"{where}/{Path(str(job.path)).name}")


def as_stored(text: str, folder: Path, where: Directory) -> str:
    """Rewrite a sentence about the copy of a directory to name the directory."""
    return text.replace(str(folder), str(where))


@contextmanager
def at_hand(where: Directory) -> Iterator[Path]:
    """Yield a directory on disk: itself, or a copy of a stored one, which is removed at the end.

    Raises:
        SourceError: it cannot be copied, or holds more than a trace may.
    """
    if isinstance(where, Path):
        yield where
        return
    with TemporaryDirectory(prefix="rankscope-trace-") as scratch:
        if where.name in {"", ".", ".."} or len(where.name) > MAX_NAME_CHARACTERS:
            raise SourceError(f"{where} has no name that a job could have")
        folder = Path(scratch, where.name)
        try:
            folder.mkdir()
            _copy(where, folder)
        except (OSError, ValueError) as error:
            raise SourceError(f"{where} cannot be copied: {error}") from error
        yield folder


def _copy(where: StoredDirectory, folder: Path) -> None:
    files, path = _filesystem(where)
    names = _listing(files, path).kinds
    for name, most in ((META, job_records.MAX_META_BYTES), (_record_file(names), MAX_FILE_BYTES)):
        if name in names:
            with files.open(f"{path}/{name}", "rb") as source, (folder / name).open("wb") as copy:
                left = most
                while chunk := source.read(min(CHUNK_BYTES, left + 1)):
                    left -= len(chunk)
                    record_files.check_bound(most - left, most, f"bytes in {name}")
                    copy.write(chunk)


def _jobs_or_reason(where: StoredDirectory) -> Sequence[Directory] | SourceError:
    try:
        return _jobs_in(where)
    except SourceError as error:
        return error
    except (OSError, ValueError) as error:
        return SourceError(f"{where} cannot be read: {type(error).__name__}: {error}")


def _jobs_in(where: StoredDirectory) -> Sequence[Directory]:
    files, path = _filesystem(where)
    found = _listing(files, path)
    names = found.kinds
    if SAVED in names:
        raise SourceError(f"{where} is what --save wrote, which is read from disk: copy it there")
    if _record_file(names):
        return [where]
    if not found.whole:
        raise SourceError(too_many_entries(where, f", or takes over {LISTING_SECONDS:g} s to list"))
    folders = sorted(name for name, kind in names.items() if kind == "directory")
    jobs = [name for name in folders if _record_file(_listing(files, f"{path}/{name}").kinds)]
    if not jobs:
        known = ", ".join(record_files.READERS)
        raise SourceError(f"{where} holds no trace: expected one of {known}")
    return [StoredDirectory(f"{where}/{name}") for name in jobs]


def _record_file(names: Mapping[str, str]) -> str:
    return next((name for name in record_files.READERS if names.get(name) == "file"), "")


@dataclass(frozen=True, slots=True)
class _Listing:
    """What a stored directory holds.

    Args:
        kinds: "file" or "directory" by name.
        whole: True if these are all entries; else only files of a known name are listed.
    """

    kinds: Mapping[str, str]
    whole: bool


def _listing(files: Any, path: str) -> _Listing:
    """List a stored directory, or look up the known names if it is too large for that."""
    listed = _listed(files, path)
    if listed is None:
        known = (META, SAVED, *record_files.READERS)
        return _Listing({name: "file" for name in known if files.isfile(f"{path}/{name}")}, False)
    kinds = {str(one["name"]).rstrip("/").rpartition("/")[2]: str(one["type"]) for one in listed}
    return _Listing(kinds, True)


def _listed(files: Any, path: str) -> Sequence[Mapping[str, Any]] | None:
    """Return fsspec's entries of a directory, None if there are too many or they take too long."""
    from fsspec.asyn import sync

    try:
        if files.async_impl:
            listed = sync(files.loop, files._ls, path, detail=True, timeout=LISTING_SECONDS)
        else:
            listed = files.ls(path, detail=True)
    except asyncio.TimeoutError:
        return None
    return listed if len(listed) <= MAX_ENTRIES else None


def _filesystem(where: StoredDirectory) -> tuple[Any, str]:
    """Return fsspec's file system for a directory, and its path there.

    Raises:
        SourceError: a package is missing, or fsspec does not know such an address.
    """
    scheme = where.url.partition("://")[0]
    package, extra = PACKAGES.get(scheme, ("fsspec", "s3"))
    try:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(where.url)
    except ImportError:
        needs = f"{where} cannot be read without {package}: pip install 'rankscope[{extra}]'"
        raise SourceError(needs) from None
    except ValueError as error:
        raise SourceError(f"{where} cannot be read: {error}") from error
    return files, str(path).rstrip("/")
