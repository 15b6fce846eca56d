"""Step records of a Parquet file in order of their start; needs pyarrow, which a watch does not.

A file is read twice. The first pass reads only starts, ranks and nodes; it shows before which
moment no later batch holds a record, so that the second pass buffers only as many records as their
disorder requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.steps import parquet_columns
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.record_files import MAX_COLUMNS, MAX_TEXT_BYTES, check_bound
from rankscope_analyzers.steps.records import CLOCK, RecordError
from rankscope_analyzers.steps.tables import BATCH_ROWS, READERS, UNKNOWN_NODE, Batch, largest

MAX_STREAMED_ROWS = 1 << 31
"""Records of a Parquet file that are read at once: a quarter of an hour's reading."""


class ParquetTable:
    """Records in a Parquet file, which is never entirely in memory unless its rows are shuffled.

    Args:
        path: the file.

    Raises:
        ValueError: it cannot be opened, or is not a Parquet file.
    """

    __slots__ = ("_earliest_after", "_ends", "_file", "columns", "node_names", "rank_count")

    def __init__(self, path: Path) -> None:
        with parquet_columns.errors_of_values():
            schema = pq.read_schema(path)
            texts = parquet_columns.texts(schema)
            self._file = pq.ParquetFile(
                path, memory_map=False, buffer_size=BUFFER_BYTES, pre_buffer=False,
                read_dictionary=texts,
            )  # fmt: skip
            _check(self._file, texts)
        self.columns: Sequence[str] = parquet_columns.readable(schema)
        self.rank_count = 1
        lengths, earliest, names = [], [], set[str]()
        for batch in self._read([name for name in (CLOCK, "rank", "node") if name in self.columns]):
            lengths.append(len(batch))
            earliest.append(_earliest(_column(batch, CLOCK)) if CLOCK in self.columns else np.inf)
            if "rank" in self.columns:
                self.rank_count = max(self.rank_count, largest(_column(batch, "rank")) + 1)
            if "node" in self.columns:
                names |= {str(name) for name in _names(batch.column("node"))}
        self._ends: Integers = np.cumsum(lengths, dtype=np.int64)
        """How many rows the file has up to the end of each batch."""
        self._earliest_after: Floats = np.minimum.accumulate([np.inf, *earliest[::-1]])[::-1]
        """The earliest start in each batch and those after it, and after the last one."""
        self.node_names: tuple[str, ...] = tuple(sorted(names)) or (UNKNOWN_NODE,)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with parquet_columns.errors_of_values():
            yield from self._file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False)

    def _floor(self, rows: int) -> float:
        """Return the moment before which no record after the first ones starts.

        Batches of other columns may end elsewhere: those of texts end where a row group does.
        """
        return float(self._earliest_after[np.searchsorted(self._ends, rows, side="right")])

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start.

        Raises:
            RecordError: the file is damaged.
        """
        wanted = [*columns, *(["node"] if "node" in self.columns else [])]
        numbers = {name: number for number, name in enumerate(self.node_names)}
        held: list[Batch] = []
        first = 1
        for batch in self._read(wanted):
            table = {name: _column(batch, name) for name in columns}
            table["node"] = _node_numbers(batch, numbers)
            held.append(Batch(table, np.arange(first, first + len(batch), dtype=np.int64)))
            first += len(batch)
            floor = self._floor(first - 1)
            if floor > _earliest_of(held):
                ready, held = _released(held, floor)
                yield from ready
        if first - 1 != self._ends[-1:].sum():
            raise RecordError("its columns are not equally long")


def _check(file: pq.ParquetFile, texts: Sequence[str]) -> None:
    metadata = file.metadata
    check_bound(len(file.schema_arrow), MAX_COLUMNS, "columns")
    check_bound(metadata.num_rows, MAX_STREAMED_ROWS, "rows")
    most = max(parquet_columns.text_bytes(file, texts), default=0)
    check_bound(most, MAX_TEXT_BYTES, "bytes of text in a row group")


BUFFER_BYTES = 1 << 16
"""Bytes of a column that are read from the file at once, instead of a whole row group's."""


def _column(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return a column as whole numbers or floats; null and what is not a number become NaN."""
    column = batch.column(name)
    if name in READERS:
        return READERS[name](column.to_pandas())
    if isinstance(column, pa.DictionaryArray):  # texts may be long, so each is read once
        known = step_records.numeric(column.dictionary.to_pandas()).astype(np.float64)
        codes = column.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        return np.asarray(np.append(known, np.nan)[codes])
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if plain and (not column.null_count or pa.types.is_floating(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return step_records.numeric(column.to_pandas())


def _names(column: Any) -> list[Any]:
    """Return the names in a column of nodes, except None."""
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
    return float(np.fmin.reduce(starts, initial=np.inf, dtype=np.float64))


def _earliest_of(held: Sequence[Batch]) -> float:
    return min(_earliest(batch.table[CLOCK]) for batch in held)


def _released(held: Sequence[Batch], floor: float) -> tuple[list[Batch], list[Batch]]:
    """Return records that start before `floor`, in order, a batch at a time, and the others.

    Those without a start come first: they are of no use and need not be kept.
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
