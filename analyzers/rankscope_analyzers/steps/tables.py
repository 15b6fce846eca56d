"""Step records in order of their start, a batch at a time: of a table in memory or a Parquet file.

A Parquet file is read twice. The first pass sees starts, ranks and nodes alone; it tells before
which moment no later batch holds a record, so that the second one keeps only as many records as
their disorder demands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.record_files import check_bound
from rankscope_analyzers.steps.records import CLOCK, Table

BATCH_ROWS = 1 << 16
"""Records of a batch: large enough for numpy, small enough for the cache."""

MAX_STREAMED_ROWS = 1 << 31
"""Records of a Parquet file that is read a part at a time: a quarter of an hour's reading."""

UNKNOWN_NODE = "unknown"


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records: their columns, and the number (from 1) of each in its source."""

    table: Table
    row: Integers


class RecordTable(Protocol):
    """Step records that can be read in order of their start."""

    @property
    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        ...

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the names that the column `node` of batches counts."""
        ...

    @property
    def rank_count(self) -> int:
        """Return the largest rank plus one, 1 where there is none."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start."""
        ...


class FrameTable:
    """Records in memory.

    Args:
        records: one row each, in any order.
    """

    __slots__ = ("_nodes", "_records", "node_names")

    def __init__(self, records: pd.DataFrame) -> None:
        self._records = records
        self._nodes: npt.NDArray[Any] = np.zeros(len(records), dtype=np.int64)
        self.node_names: tuple[str, ...] = (UNKNOWN_NODE,)
        if "node" in records.columns:
            self._nodes, names = pd.factorize(records["node"], sort=True)
            self.node_names = tuple(str(name) for name in names) or (UNKNOWN_NODE,)

    @property
    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return list(self._records.columns)

    @property
    def rank_count(self) -> int:
        """Return the largest rank plus one, 1 where there is none."""
        if "rank" not in self._records.columns:
            return 1
        return _largest(step_records.numeric(self._records["rank"])) + 1

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start."""
        table: dict[str, npt.NDArray[Any]] = {
            name: _READERS.get(name, step_records.numeric)(self._records[name]) for name in columns
        }
        table["node"] = self._nodes
        order = _order(table[CLOCK])
        count = len(self._records)
        for first in range(0, count, BATCH_ROWS):
            last = min(first + BATCH_ROWS, count)
            if order is None:
                row = np.arange(first + 1, last + 1, dtype=np.int64)
                yield Batch({name: values[first:last] for name, values in table.items()}, row)
            else:
                part = order[first:last]
                yield Batch({name: values.take(part) for name, values in table.items()}, part + 1)


_READERS: Mapping[str, Callable[[pd.Series[Any]], npt.NDArray[Any]]] = {
    step_records.TIMING: step_records.timings
}
"""How columns are read that are no numbers."""


def _order(starts: npt.NDArray[Any]) -> Integers | None:
    """Return the order of starts, None where they are in it; unknown ones come last."""
    if not (starts[1:] < starts[:-1]).any() and not np.isnan(starts).any():
        return None
    return np.argsort(starts).astype(np.int64)


def _largest(ranks: npt.NDArray[Any]) -> int:
    known = ranks[(ranks >= 0) & (ranks < step_records.LARGEST_COUNTER)]
    return int(known.max()) if len(known) else 0


class ParquetTable:
    """Records in a Parquet file, which is never in memory as a whole unless its rows are shuffled.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no Parquet file (pyarrow's errors are ValueErrors).
    """

    __slots__ = ("_file", "_floors", "columns", "node_names", "rank_count")

    def __init__(self, path: Path) -> None:
        texts = {"node", step_records.TIMING}
        self._file = pq.ParquetFile(
            path, memory_map=False, buffer_size=BUFFER_BYTES, pre_buffer=False,
            read_dictionary=sorted(texts.intersection(pq.read_schema(path).names)),
        )  # fmt: skip
        check_bound(self._file.metadata.num_rows, MAX_STREAMED_ROWS, "rows")
        self.columns: Sequence[str] = list(self._file.schema_arrow.names)
        self.rank_count = 1
        earliest, names = [], set[str]()
        for batch in self._read([name for name in (CLOCK, "rank", "node") if name in self.columns]):
            if CLOCK in self.columns:
                earliest.append(_earliest(_column(batch, CLOCK)))
            if "rank" in self.columns:
                self.rank_count = max(self.rank_count, _largest(_column(batch, "rank")) + 1)
            if "node" in self.columns:
                names |= {str(name) for name in _names(batch.column("node"))}
        # Before this moment no later batch holds a record.
        later = np.minimum.accumulate(np.array([*earliest, np.inf])[::-1])[::-1]
        self._floors: list[float] = later[1:].tolist()
        self.node_names: tuple[str, ...] = tuple(sorted(names)) or (UNKNOWN_NODE,)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self._file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False)

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start."""
        wanted = [*columns, *(["node"] if "node" in self.columns else [])]
        numbers = {name: number for number, name in enumerate(self.node_names)}
        held: list[Batch] = []
        first = 1
        for batch, floor in zip(self._read(wanted), self._floors, strict=True):
            table = {name: _column(batch, name) for name in columns}
            table["node"] = _node_numbers(batch, numbers)
            held.append(Batch(table, np.arange(first, first + len(batch), dtype=np.int64)))
            first += len(batch)
            if floor > _earliest_of(held):
                ready, held = _released(held, floor)
                yield from ready


BUFFER_BYTES = 1 << 16
"""Bytes of a column that are read from the file at once, instead of a whole row group's."""


def _column(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return a column as whole numbers or floats; null, or what is no number, is NaN."""
    column = batch.column(name)
    if name in _READERS:
        return _READERS[name](column.to_pandas())
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if plain and (not column.null_count or pa.types.is_floating(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return step_records.numeric(column.to_pandas())


def _names(column: Any) -> list[Any]:
    """Return the names in a column of nodes, None aside."""
    values = column.dictionary if isinstance(column, pa.DictionaryArray) else column.unique()
    return [name for name in values.to_pylist() if name is not None]


def _node_numbers(batch: pa.RecordBatch, numbers: dict[str, int]) -> Integers:
    """Return the number of each record's node, -1 where it has none."""
    if "node" not in batch.schema.names:
        return np.zeros(len(batch), dtype=np.int64)
    column = batch.column("node")
    coded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    known = [-1 if name is None else numbers[str(name)] for name in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*known, -1], dtype=np.int64)[codes])


def _earliest(starts: npt.NDArray[Any]) -> float:
    """Return the earliest known start, infinity where there is none."""
    return float(np.fmin.reduce(starts, initial=np.inf))


def _earliest_of(held: Sequence[Batch]) -> float:
    return min(_earliest(batch.table[CLOCK]) for batch in held)


def _released(held: Sequence[Batch], floor: float) -> tuple[list[Batch], list[Batch]]:
    """Return records that start before `floor`, in order, a batch at a time, and the others.

    Those without a start go first: they are of no use and need not be kept.
    """
    together = _joined(held)
    starts: Floats = together.table[CLOCK]
    waits = starts >= floor
    order = np.argsort(np.where(waits, np.inf, np.nan_to_num(starts, nan=-np.inf)))
    order = order[: len(starts) - int(waits.sum())]
    ready = [
        _at(together, order[first : first + BATCH_ROWS])
        for first in range(0, len(order), BATCH_ROWS)
    ]
    return ready, [_at(together, np.flatnonzero(waits))] if waits.any() else []


def _joined(held: Sequence[Batch]) -> Batch:
    if len(held) == 1:
        return held[0]
    names = held[0].table
    table = {name: np.concatenate([batch.table[name] for batch in held]) for name in names}
    return Batch(table, np.concatenate([batch.row for batch in held]))


def _at(batch: Batch, index: npt.NDArray[Any]) -> Batch:
    table = {name: values[index] for name, values in batch.table.items()}
    return Batch(table, batch.row[index])
