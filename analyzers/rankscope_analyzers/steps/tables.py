"""Step records in order of their start, a batch at a time, and those of an in-memory table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankscope_analyzers.numeric.arrays import Booleans, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import CLOCK, Table

BATCH_ROWS = 1 << 16
"""Records of a batch: large enough for numpy, small enough for the cache."""

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
        """Return the names that the column `node` of batches indexes."""
        ...

    @property
    def rank_count(self) -> int:
        """Return the largest rank plus one, 1 if there are none."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start."""
        ...


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """Records in memory, as columns that need no further conversion.

    Args:
        numbers: (n,) columns by name; the timing is one of the values of `records.TIMINGS`.
        node: (n,) index of each record's node.
        node_names: the names that `node` indexes.
    """

    numbers: Table
    node: Integers
    node_names: tuple[str, ...]

    @classmethod
    def of_frame(cls, records: pd.DataFrame, columns: Sequence[str]) -> ColumnTable:
        """Return some columns of records, as far as they exist."""
        table = FrameTable(records)
        known = [name for name in columns if name in records.columns]
        return cls(table.read(known), table.nodes, table.node_names)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.node)

    @property
    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return list(self.numbers)

    @property
    def rank_count(self) -> int:
        """Return the largest rank plus one, 1 if there are none."""
        return largest(self.numbers["rank"]) + 1 if "rank" in self.numbers else 1

    def at(self, which: Booleans) -> ColumnTable:
        """Return some of the records."""
        if which.all():
            return self
        numbers = {name: values[which] for name, values in self.numbers.items()}
        return ColumnTable(numbers, self.node[which], self.node_names)

    def followed_by(self, newer: ColumnTable) -> ColumnTable:
        """Return these records followed by others; columns that one lacks are unknown there."""
        if not len(self):
            return newer
        if not len(newer):
            return self
        names = dict.fromkeys((*self.numbers, *newer.numbers))
        numbers = {
            name: np.concatenate([_column(one, name) for one in (self, newer)]) for name in names
        }
        known = tuple(dict.fromkeys((*self.node_names, *newer.node_names)))
        place = {name: number for number, name in enumerate(known)}
        moved = np.array([place[name] for name in newer.node_names], dtype=np.int64)
        return ColumnTable(numbers, np.concatenate([self.node, moved[newer.node]]), known)

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start."""
        table = {name: self.numbers[name] for name in columns}
        yield from _batches({**table, "node": self.node})


def _column(table: ColumnTable, name: str) -> npt.NDArray[Any]:
    if name in table.numbers:
        return table.numbers[name]
    lacking = 0 if name == step_records.TIMING else np.nan
    return np.full(len(table), lacking)


class FrameTable:
    """Records in memory.

    Args:
        records: one row each, in any order.
    """

    __slots__ = ("_records", "columns", "node_names", "nodes")

    def __init__(self, records: pd.DataFrame) -> None:
        self._records = records
        self.columns: Sequence[str] = list(records.columns)
        """The names of the columns: asked for again and again, and pandas is slow to list them."""
        self.nodes: npt.NDArray[Any] = np.zeros(len(records), dtype=np.int64)
        self.node_names: tuple[str, ...] = (UNKNOWN_NODE,)
        if "node" in records.columns:
            self.nodes, names = pd.factorize(records["node"], sort=True)
            self.node_names = tuple(str(name) for name in names) or (UNKNOWN_NODE,)

    @property
    def rank_count(self) -> int:
        """Return the largest rank plus one, 1 if there are none."""
        if "rank" not in self.columns:
            return 1
        return largest(step_records.numeric(self._records["rank"])) + 1

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start."""
        yield from _batches({**self.read(columns), "node": self.nodes})

    def read(self, columns: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Return these columns as numbers, in the order of the records."""
        return {
            name: READERS.get(name, step_records.numeric)(self._records[name]) for name in columns
        }


def _batches(table: Table) -> Iterator[Batch]:
    """Yield columns a batch at a time, in order of the records' start."""
    order = _order(table[CLOCK])
    count = len(table[CLOCK])
    for first in range(0, count, BATCH_ROWS):
        last = min(first + BATCH_ROWS, count)
        if order is None:
            row = np.arange(first + 1, last + 1, dtype=np.int64)
            yield Batch({name: values[first:last] for name, values in table.items()}, row)
        else:
            part = order[first:last]
            yield Batch({name: values.take(part) for name, values in table.items()}, part + 1)


READERS: Mapping[str, Callable[[pd.Series[Any]], npt.NDArray[Any]]] = {
    step_records.TIMING: step_records.timings
}
"""How columns are read that are not numbers."""


def _order(starts: npt.NDArray[Any]) -> Integers | None:
    """Return the order of starts, None if they are sorted already; unknown ones come last."""
    if not (starts[1:] < starts[:-1]).any() and not np.isnan(starts).any():
        return None
    return np.argsort(starts).astype(np.int64)


def largest(ranks: npt.NDArray[Any]) -> int:
    """Return the largest valid rank, 0 if there is none."""
    known = ranks[(ranks >= 0) & (ranks < step_records.LARGEST_COUNTER)]
    return int(known.max()) if len(known) else 0
