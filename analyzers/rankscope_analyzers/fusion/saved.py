"""The data that a diagnosis has read, as a trace directory that gives the same verdict later.

`evidence.json` has the series of agents' pages or Prometheus and the notes on sources; each job
with step records has its own directory next to it, in the format of the trace contract. Such a
directory may come from anybody: files that do not fit the format are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankscope_agent.contract import stalls, untrusted_json
from rankscope_agent.contract.stalls import RankStall
from rankscope_analyzers.findings.finding import Cost, Evidence, Finding, RankLocation, Where
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Series, gathered
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.steps import job_records
from rankscope_analyzers.steps.job_records import JobRecords, SourceError
from rankscope_analyzers.text import finite_json

NAME = "evidence.json"
FORMAT_VERSION = 1
START = "start"

MAX_BYTES = 1 << 29
"""Limit of evidence.json: the pages of 2,048 nodes, read twice, are some 300 MB of JSON."""


def check(directory: Path) -> None:
    """Refuse a directory that already holds something.

    Raises:
        OSError: it does (FileExistsError), or is no directory.
    """
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty: --save writes into a new directory")


def write(directory: Path, found: Gathered, made_unix_seconds: float) -> None:
    """Write what was read into a new directory.

    Raises:
        OSError: it cannot be written, or already holds something (FileExistsError).
    """
    directory.mkdir(parents=True, exist_ok=True)
    check(directory)
    jobs = [_write_job(directory, number, job) for number, job in enumerate(found.jobs)]
    kept = found.evidence
    whole = {
        "format_version": FORMAT_VERSION,
        "made_unix_seconds": made_unix_seconds,
        "jobs": jobs,
        "source": kept.observed.source,
        "series": [_series(one) for one in kept.observed.all()],
        "findings": [asdict(one) for one in kept.findings],
        "notes": list(kept.notes),
        "missing": list(kept.missing),
        "sources": list(kept.sources),
        "clocks_ahead": dict(kept.clocks_ahead),
        "stalls": [stalls.as_object(one) for job in kept.stalls.values() for one in job],
        "of_jobs": {job_id: list(notes) for job_id, notes in kept.of_jobs.items()},
    }
    (directory / NAME).write_text(finite_json.text(whole) + "\n", encoding="utf-8")


def _write_job(directory: Path, number: int, job: JobRecords) -> dict[str, Any]:
    """Write a job's records; return what its directory cannot hold."""
    name = f"job-{number}"
    folder = directory / name
    folder.mkdir()
    meta = {**job.meta, "format_version": FORMAT_VERSION, "job": job.job_id}
    if job.world_size is not None:
        meta["world_size"] = job.world_size
    (folder / "meta.json").write_text(finite_json.text(meta) + "\n", encoding="utf-8")
    job.records.to_parquet(folder / "records.parquet", index=False)
    if job.start is not None and not job.start.empty:
        (folder / START).mkdir()
        job.start.to_parquet(folder / START / "records.parquet", index=False)
    return {
        "directory": name,
        "meta": dict(job.meta),
        "notes": list(job.notes),
        "live": job.live,
        "windows": [dict(window) for window in job.windows],
    }


def _series(one: Series) -> list[Any]:
    return [one.node, one.name, dict(one.labels), one.times.tolist(), _numbers(one.values)]


def _numbers(values: Floats) -> list[float | str]:
    """Return values as JSON can hold them: infinities as Prometheus writes them."""
    return [one if math.isfinite(one) else str(one) for one in values.tolist()]


def is_saved(directory: Path) -> bool:
    """Return True if a diagnosis was saved there; False, too, where nothing can be read."""
    try:
        return (directory / NAME).is_file()
    except OSError:
        return False


def read(directory: Path) -> tuple[Gathered, float]:
    """Return what a diagnosis had read, and the Unix time at which it was made.

    Raises:
        SourceError: the directory cannot be read, or `write` did not make it.
    """
    path = directory / NAME
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"{size:,} bytes, and at most {MAX_BYTES:,} are read")
        whole = untrusted_json.read(path.read_text(encoding="utf-8"))
        if whole["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format version {whole['format_version']!r}")
        made = _finite(whole["made_unix_seconds"])
        jobs = tuple(_job(directory, number, one) for number, one in enumerate(whole["jobs"]))
        return Gathered(jobs, _evidence(whole)), made
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SourceError(f"{path} cannot be read as a saved diagnosis: {error}") from error


def _finite(value: object) -> float:
    """Return a finite number.

    Raises:
        ValueError: the value is not a number, or is infinite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def _job(directory: Path, number: int, kept: Mapping[str, Any]) -> JobRecords:
    # A file name in the document is not followed: it could point anywhere.
    folder = directory / f"job-{number}"
    job = job_records.trace(folder)
    start = folder / START
    return replace(
        job,
        notes=_texts(kept["notes"]),
        live=kept["live"] is True,
        meta=dict(kept["meta"]),
        path=None if kept["live"] is True else job.path,
        windows=tuple(dict(window) for window in kept["windows"]),
        start=job_records.trace(start).records if start.is_dir() else None,
    )


def _evidence(whole: Mapping[str, Any]) -> JobEvidence:
    series = [
        Series(str(node), str(name), _labels(labels), _array(times), _array(values))
        for node, name, labels, times, values in whole["series"]
    ]
    for one in series:
        if not 0 < len(one.times) == len(one.values) or (np.diff(one.times) < 0).any():
            raise ValueError(f"series {one.name} of node {one.node} has no order")
    return JobEvidence(
        observed=gathered(series, str(whole["source"])),
        findings=tuple(_finding(one) for one in whole["findings"]),
        notes=_texts(whole["notes"]),
        missing=_texts(whole["missing"]),
        sources=_texts(whole["sources"]),
        clocks_ahead={str(node): _finite(by) for node, by in whole["clocks_ahead"].items()},
        of_jobs={str(job): _texts(notes) for job, notes in whole["of_jobs"].items()},
        stalls=_stalls(whole.get("stalls", ())),
    )


def _stalls(kept: Sequence[Mapping[str, Any]]) -> Mapping[str, Sequence[RankStall]]:
    found: dict[str, list[RankStall]] = {}
    for one in map(stalls.read, kept):
        found.setdefault(one.job_id, []).append(one)
    return found


def _labels(labels: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in labels.items()}


def _array(values: Sequence[Any]) -> Floats:
    found: Floats = np.array([float(one) for one in values], dtype=np.float64)
    if np.isnan(found).any():
        raise ValueError("a value that is not a number")
    return found


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(one) for one in values)


def _finding(kept: Mapping[str, Any]) -> Finding:
    where, cost = kept["where"], kept["cost"]
    places = tuple(
        RankLocation(**{**one, "nics": _texts(one["nics"])}) for one in where["culprits"]
    )
    lists = {name: tuple(where[name]) for name in ("nodes", "ranks", "uuids", "gpus", "devices")}
    return Finding(
        **{
            **kept,
            "where": Where(**lists, stage=where["stage"], culprits=places),
            "evidence": tuple(Evidence(**one) for one in kept["evidence"]),
            "cost": None if cost is None else Cost(**cost),
            "agreeing": _texts(kept.get("agreeing", ())),
        }
    )
