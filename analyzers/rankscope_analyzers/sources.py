"""Where step records come from: agents over HTTP and trace directories on disk.

Reading only; `frames.build` makes sense of what is read. A source that cannot be read is named: if
others remain it becomes a note on the verdict, if none does it is a `SourceError`.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from rankscope_analyzers.agent_client import Agent, AgentError
from rankscope_analyzers.credentials import NONE, Entry
from rankscope_analyzers.record_tables import FrameTable, ParquetTable, RecordTable
from rankscope_analyzers.step_history import AGENT, StepAnswer, StepHistory, step_answer

WINDOWS_SECONDS = 900.0
"""How far back windows of collectives are fetched: 8 ranks then have up to 100,000 collectives, of
which a hundred nodes' take half a minute to compare."""

MAXIMUM_ANSWER_BYTES = 512 << 20
"""Eight full rings of 65,536 records are about 80 MB of JSON."""

NARROWINGS = 6
"""An agent sends half a million rows at most, of the first ranks first. Asking again for a quarter
of the time, six times, shrinks a week to two minutes; what is needed is the newest of all ranks."""

POOL_SIZE = 32
"""Agents asked at once: enough for a rack, few enough for one workstation's sockets."""

RECORD_READERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    "records.csv": pd.read_csv,
    "records.csv.gz": pd.read_csv,
    "records.parquet": pd.read_parquet,
    "records.npz": lambda path: _read_npz(path),
}
"""The forms in which a trace directory may hold its records, by file name."""


class SourceError(Exception):
    """Nothing could be read; the message says from where and why."""


@dataclass(frozen=True, slots=True)
class JobRecords:
    """The step records of one job.

    Args:
        records: columns of the trace contract, rows in any order.
        world_size: ranks that the job should have, None where nobody says.
        notes: what could not be read, as sentences.
        live: read from agents, so that only the newest run is of interest.
        meta: what the trace says about the job's layout, empty for agents.
        path: the file of records, None for agents.
        windows: of collectives, as agents sample them from Flight Recorders.
    """

    job_id: str
    records: pd.DataFrame
    world_size: int | None
    notes: tuple[str, ...]
    live: bool
    meta: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    windows: tuple[Mapping[str, Any], ...] = ()


def from_traces(directories: Sequence[Path]) -> tuple[JobRecords, ...]:
    """Read job directories, or directories of job directories, in the format of the contract.

    Raises:
        SourceError: a directory is missing or holds no trace, a file in it cannot be read, or
            two of them hold a job of one name.
    """
    places = [place for directory in directories for place in job_directories(directory)]
    jobs = tuple(trace(place) for place in places)
    named: dict[str, Path] = {}
    for job, place in zip(jobs, places, strict=True):
        if named.setdefault(job.job_id, place) != place:
            raise SourceError(f"{named[job.job_id]} and {place} both hold job {job.job_id}")
    return jobs


def job_directories(directory: Path) -> list[Path]:
    """Return a directory that holds a trace, or the directories in it that do, by name.

    Raises:
        SourceError: there is none.
    """
    if not directory.is_dir():
        raise SourceError(f"{directory} is not a directory; --trace takes job directories")
    if _record_file(directory):
        return [directory]
    jobs = sorted(path for path in directory.iterdir() if path.is_dir() and _record_file(path))
    if not jobs:
        raise SourceError(f"{directory} holds no trace: expected one of {list(RECORD_READERS)}")
    return jobs


def _record_file(directory: Path) -> Path | None:
    return next((directory / name for name in RECORD_READERS if (directory / name).is_file()), None)


@dataclass(frozen=True, slots=True)
class TraceTable:
    """A trace whose records are read as they are needed.

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
    """Open the trace that a directory holds; of a Parquet file only a part is in memory at once.

    Raises:
        SourceError: it cannot be read.
    """
    meta, path = _trace_files(directory)
    job_id = str(meta.get("job", directory.name))
    if path.suffix != ".parquet":
        return TraceTable(job_id, path, FrameTable(_whole(path)), meta)
    try:
        records = ParquetTable(path)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read as step records: {error}") from error
    return TraceTable(job_id, path, records, meta)


def _trace_files(directory: Path) -> tuple[dict[str, Any], Path]:
    meta = _meta(directory / "meta.json")
    path = _record_file(directory)
    if path is None:
        raise SourceError(f"{directory} holds no trace: expected one of {list(RECORD_READERS)}")
    return meta, path


def _whole(path: Path) -> pd.DataFrame:
    try:
        records = RECORD_READERS[path.name](path)
    except (OSError, ValueError, KeyError, EOFError, zlib.error, BadZipFile) as error:
        raise SourceError(f"{path} cannot be read as step records: {error}") from error
    if records.empty:
        raise SourceError(f"{path} holds no step records")
    return records


def _meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(meta, dict) or meta.get("format_version", 1) != 1:
        raise SourceError(f"{path} is not trace metadata of format version 1")
    return meta


def _read_npz(path: Path) -> pd.DataFrame:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return pd.DataFrame({name: arrays[name] for name in arrays.files if arrays[name].ndim == 1})


def from_agents(
    urls: Sequence[str],
    job_id: str | None,
    since_unix_seconds: float,
    entry: Entry = NONE,
    history: StepHistory | None = None,
) -> tuple[JobRecords, ...]:
    """Ask agents for the step records of their nodes and put them together by job.

    Args:
        urls: addresses of agents.
        job_id: the job to ask for, None for all.
        since_unix_seconds: only steps that started later.
        entry: what is shown to be let in.
        history: what the same question was answered before.

    Raises:
        SourceError: no agent answered, or none has a step record.
    """
    known = StepHistory() if history is None else history
    known.keep(urls)
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        agents = [Agent(url, entry) for url in urls]
        asked = pool.map(lambda agent: _ask(agent, job_id, since_unix_seconds, known), agents)
        answers = list(asked)
    failures = tuple(answer for answer in answers if isinstance(answer, str))
    nodes = [answer for answer in answers if not isinstance(answer, str)]
    if not nodes:
        raise SourceError("; ".join(failures))
    steps = known.add([node.steps for node in nodes], since_unix_seconds)
    if steps.empty:
        wanted = f"of job {job_id} " if job_id else ""
        raise SourceError(f"no step records {wanted}at {', '.join(urls)}: is the probe injected?")
    sizes, windows = _world_sizes(nodes, known), _windows_by_job(nodes)
    return tuple(
        JobRecords(
            str(name),
            rows.drop(columns=AGENT),
            sizes.get(name),
            failures,
            live=True,
            windows=tuple(windows.get(name, ())),
        )
        for name, rows in steps.groupby("job_id", sort=True)
    )


@dataclass(frozen=True, slots=True)
class _NodeAnswer:
    steps: StepAnswer
    ranks: list[dict[str, Any]]
    windows: list[dict[str, Any]]


def _windows_by_job(nodes: Sequence[_NodeAnswer]) -> Mapping[Any, list[Mapping[str, Any]]]:
    found: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for window in (window for node in nodes for window in node.windows):
        found[str(window.get("job_id"))].append(window)
    return found


def _world_sizes(nodes: Sequence[_NodeAnswer], known: StepHistory) -> Mapping[Any, int]:
    """Return the size that jobs have by their living ranks, or by those of the last node's.

    A job that shrank has nodes on which all ranks ended and that know its former size only.
    """
    alive: dict[str, set[int]] = defaultdict(set)
    ended: dict[str, tuple[float, set[int]]] = {}
    for node in nodes:
        newest: dict[Any, float] = defaultdict(float)
        for (job, _), start in known.newest(node.steps.url).items():
            newest[job] = max(newest[job], start)
        sizes: dict[str, set[int]] = defaultdict(set)
        for rank in node.ranks:
            job, size = str(rank.get("job_id")), rank.get("world_size")
            if isinstance(size, int):
                sizes[job].add(size)
                if rank.get("alive"):
                    alive[job].add(size)
        for job, several in sizes.items():
            ended[job] = max(ended.get(job, (-1.0, set())), (newest[job], several), key=_time)
    return {job: max(alive.get(job) or several) for job, (_, several) in ended.items()}


def _time(of_node: tuple[float, set[int]]) -> float:
    return of_node[0]


def _ask(
    agent: Agent, job_id: str | None, oldest: float, history: StepHistory
) -> _NodeAnswer | str:
    """Return what an agent says, or one sentence about why it says nothing."""
    try:
        ranks = [rank for rank in agent.json("/api/v1/ranks")["ranks"] if isinstance(rank, dict)]
        steps = _steps(agent, job_id, history.since(agent.url, ranks, oldest))
        return _NodeAnswer(steps, ranks, _windows(agent, job_id, oldest, steps))
    except AgentError as error:
        return str(error)
    except (ValueError, KeyError, TypeError) as error:
        return f"{agent.url} does not answer like a rankscope agent: {error!r}"


def _steps(agent: Agent, job_id: str | None, since_unix_seconds: float) -> StepAnswer:
    """Fetch step records, of a shorter time as long as the agent had to leave some out."""
    since = since_unix_seconds
    for _ in range(NARROWINGS):
        query = {"since": f"{since:.6f}", **({"job": job_id} if job_id else {})}
        said = agent.json(f"/api/v1/steps?{urlencode(query)}", MAXIMUM_ANSWER_BYTES)
        answer = step_answer(agent.url, since, said)
        if not said.get("truncated"):
            return answer
        starts = [start for _, start in answer.starts()]
        since = max(starts) - (max(starts) - min(starts)) / 4
    raise ValueError(f"more than {len(answer.rows)} records since {since:.0f}")


def _windows(
    agent: Agent, job_id: str | None, oldest: float, steps: StepAnswer
) -> list[dict[str, Any]]:
    """Fetch windows of collectives where records lack sync time; none if that fails."""
    if None not in steps.column("sync_seconds"):
        return []
    newest = max((start for _, start in steps.starts()), default=oldest)
    since = {"since": f"{max(oldest, newest - WINDOWS_SECONDS):.6f}"}
    query = urlencode({**since, **({"job": job_id} if job_id else {})})
    try:
        answer = agent.json(f"/api/v1/collectives?{query}", MAXIMUM_ANSWER_BYTES)
        return [window for window in answer["windows"] if isinstance(window, dict)]
    except (AgentError, KeyError, TypeError):
        return []  # older agents have no such page, and the records are worth more than it
