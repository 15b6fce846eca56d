"""Step records in order of their start, a batch at a time, and those of a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankscope_analyzers.numeric.arrays import Integers
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
        return largest(step_records.numeric(self._records["rank"])) + 1

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield these columns of all records, and `node` as a number, in order of their start."""
        table: dict[str, npt.NDArray[Any]] = {
            name: READERS.get(name, step_records.numeric)(self._records[name]) for name in columns
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


READERS: Mapping[str, Callable[[pd.Series[Any]], npt.NDArray[Any]]] = {
    step_records.TIMING: step_records.timings
}
"""How columns are read that are no numbers."""


def _order(starts: npt.NDArray[Any]) -> Integers | None:
    """Return the order of starts, None where they are in it; unknown ones come last."""
    if not (starts[1:] < starts[:-1]).any() and not np.isnan(starts).any():
        return None
    return np.argsort(starts).astype(np.int64)


def largest(ranks: npt.NDArray[Any]) -> int:
    """Return the largest rank that is one, 0 where there is none."""
    known = ranks[(ranks >= 0) & (ranks < step_records.LARGEST_COUNTER)]
    return int(known.max()) if len(known) else 0
