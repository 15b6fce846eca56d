"""The newest records of many jobs, in bounded memory: the source of the figures in reports."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankscope_agent.contract.fair_shares import allot
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps.records import CLOCK, TIMING, TIMINGS
from rankscope_analyzers.steps.tables import ColumnTable

MOST_RECORDS = 3 << 19
"""Records of all jobs: 96 steps of 16,384 ranks, or 24 minutes of 1,024 ranks that make one a
second. A record takes about a hundred bytes."""

TIMING_INDEX = "timing"
STEP = "step"


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a record: what does not change from one record to the next."""

    rank: int
    node: str
    gpu: int | None
    dp_group: int
    tp_group: int
    pp_stage: int


NUMBERED = ("rank", "dp_group", "tp_group", "pp_stage")
COLUMNS = (*NUMBERED[:1], "node", "gpu", *NUMBERED[1:])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that arrived at one look.

    Args:
        arrived: Unix time of the look.
        writer: (n,) number of each record's writer.
        numbers: (n,) columns; unknown ones are left out.
    """

    arrived: float
    writer: Integers
    numbers: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.writer)

    def chosen(self, which: Booleans) -> Chunk:
        """Return some of the records."""
        numbers = {name: one[which] for name, one in self.numbers.items()}
        return Chunk(self.arrived, self.writer[which], numbers)


class JobWindow:
    """The newest records of one job, in the order in which they came."""

    __slots__ = ("_chunks", "_count", "_fresh", "_numbers", "_timings", "_writers")

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._count = self._fresh = 0
        self._numbers: dict[Writer, int] = {}
        self._writers: list[Writer] = []
        self._timings: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of records."""
        return self._count

    @property
    def fresh(self) -> int:
        """Return how many records arrived since `taken` was called last."""
        return self._fresh

    def number(self, writer: Writer) -> int:
        """Return the number of a writer."""
        if writer not in self._numbers:
            self._numbers[writer] = len(self._writers)
            self._writers.append(writer)
        return self._numbers[writer]

    def timing(self, name: str) -> int:
        """Return the number of a timing source."""
        return self._timings.setdefault(name, len(self._timings))

    def add(self, arrived: float, writer: Integers, numbers: Mapping[str, Floats]) -> None:
        """Add records, the newest ones."""
        known = {name: _stored(one) for name, one in numbers.items() if not np.isnan(one).all()}
        self._chunks.append(Chunk(arrived, writer.astype(np.int32), known))
        self._count += len(writer)
        self._fresh += len(writer)

    def forget(self, before: float, most: int) -> None:
        """Drop what arrived before a time, and the oldest records beyond a number, but none fresh.

        Args:
            before: Unix time.
            most: records that may stay.
        """
        while self._chunks and self._count - len(self._chunks[0]) >= self._fresh:
            if self._chunks[0].arrived >= before and self._count <= most:
                return
            self._count -= len(self._chunks.popleft())

    def taken(self) -> None:
        """Record that all fresh records were judged."""
        self._fresh = 0

    def fresh_steps(self) -> int:
        """Return the number of different steps among the fresh records."""
        return len(np.unique(_column(self._fresh_chunks(), STEP, unknown=-1.0)))

    def drop_fresh(self, most: int, most_steps: int) -> int:
        """Drop the oldest fresh records beyond a number of records or steps; return how many.

        Args:
            most: records that may stay; all of the oldest step that stays do.
            most_steps: different steps that may stay.
        """
        chunks = self._fresh_chunks()
        starts = _column(chunks, CLOCK, unknown=-np.inf)
        newest_first = np.argsort(-starts, kind="stable")
        steps = _column(chunks, STEP, unknown=-1.0)
        begins = np.sort(np.unique(steps[newest_first], return_index=True)[1])
        most = min(most, int(begins[most_steps]) if most_steps < len(begins) else len(starts))
        if len(starts) <= most:
            return 0
        oldest = starts[newest_first[most - 1]] if most else np.inf
        ends = np.cumsum([len(chunk) for chunk in chunks])[:-1]
        parts = zip(chunks, np.split(starts >= oldest, ends), strict=True)
        kept = [chunk.chosen(which) for chunk, which in parts]
        for _ in chunks:
            self._chunks.pop()
        self._chunks.extend(chunk for chunk in kept if len(chunk))
        dropped = len(starts) - sum(map(len, kept))
        self._count -= dropped
        self._fresh -= dropped
        return dropped

    def records(self) -> pd.DataFrame:
        """Return all records, the fresh ones last."""
        return self._frame(list(self._chunks))

    def fresh_table(self) -> ColumnTable:
        """Return the records that arrived since `taken` was called last."""
        chunks = self._fresh_chunks()
        writer = _writer(chunks)
        numbers = {name: _column(chunks, name) for name in _names(chunks)}
        timing = numbers.pop(TIMING_INDEX, None)
        for name in NUMBERED:
            numbers[name] = _of_writers([getattr(one, name) for one in self._writers])[writer]
        if timing is not None:
            known = np.array([*(TIMINGS.get(name, 0) for name in self._timings), 0])
            numbers[TIMING] = known[_timing(timing)]
        names = dict.fromkeys(one.node for one in self._writers)
        place = {name: number for number, name in enumerate(names)}
        nodes = np.array([place[one.node] for one in self._writers], dtype=np.int64)
        return ColumnTable(numbers, nodes[writer], tuple(names))

    def _fresh_chunks(self) -> Sequence[Chunk]:
        chunks: list[Chunk] = []
        left = self._fresh
        for chunk in reversed(self._chunks):
            if left <= 0:
                break
            chunks.append(chunk)
            left -= len(chunk)
        return chunks[::-1]

    def _frame(self, chunks: Sequence[Chunk]) -> pd.DataFrame:
        if not chunks:
            return pd.DataFrame()
        writer = _writer(chunks)
        table: dict[str, npt.NDArray[Any]] = {
            name: _column(chunks, name) for name in _names(chunks)
        }
        timing = table.pop(TIMING_INDEX, None)
        for name in COLUMNS:
            table[name] = _of_writers([getattr(one, name) for one in self._writers])[writer]
        if timing is not None:
            sources = np.array([*self._timings, "none"], dtype=object)
            table[TIMING] = sources[_timing(timing)]
        return pd.DataFrame(table, copy=False)


def _stored(column: Floats) -> Floats:
    """Return a column in its stored form: one number if all are equal, as attempts are."""
    alike = bool((column == column[:1]).all())
    return np.broadcast_to(column[:1].copy(), len(column)) if alike else column


def _writer(chunks: Sequence[Chunk]) -> Integers:
    parts = [chunk.writer for chunk in chunks]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _names(chunks: Sequence[Chunk]) -> Iterable[str]:
    return dict.fromkeys(name for chunk in chunks for name in chunk.numbers)


def _timing(numbers: Floats) -> Integers:
    """Return numbers of timing sources, -1 for unknown ones."""
    return np.where(np.isnan(numbers), -1.0, numbers).astype(np.int64)


def _column(chunks: Sequence[Chunk], name: str, unknown: float = math.nan) -> Floats:
    """Return a column of several chunks, with a given number where a value is unknown."""
    parts = [
        chunk.numbers[name] if name in chunk.numbers else np.full(len(chunk), np.nan)
        for chunk in chunks
    ]
    values = np.concatenate(parts) if parts else np.empty(0)
    return values if math.isnan(unknown) else np.where(np.isnan(values), unknown, values)


def _of_writers(values: Sequence[int | str | None]) -> npt.NDArray[Any]:
    if values and isinstance(values[0], str):
        return np.array(values, dtype=object)
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


class StepWindows:
    """The newest records of many jobs.

    Args:
        seconds: how long records are kept.
        most_records: of all jobs together; if there are more, each keeps an equal share.
    """

    def __init__(self, seconds: float, most_records: int = MOST_RECORDS) -> None:
        self._seconds = seconds
        self._most = most_records
        self.jobs: dict[str, JobWindow] = {}

    def of(self, job_id: str) -> JobWindow:
        """Return the records of a job."""
        return self.jobs.setdefault(job_id, JobWindow())

    def trim(self, now: float) -> None:
        """Drop what is too old or too much, and jobs of which nothing is left.

        Args:
            now: Unix time.
        """
        shares = allot({name: len(window) for name, window in self.jobs.items()}, self._most)
        for name, window in list(self.jobs.items()):
            window.forget(now - self._seconds, shares[name])
            if not len(window):
                del self.jobs[name]
