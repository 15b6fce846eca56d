"""Step records as arrays of equal length, on their way from the source to the steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope_agent.contract.model import FLAG_EVALUATION, FLAG_FIRST
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import (
    CLOCK,
    COUNTERS,
    CPU_WAIT,
    DURATIONS,
    OTHER,
    TIMING,
    Account,
    Dropped,
    Rules,
    Table,
)
from rankscope_analyzers.steps.tables import RecordTable

REQUIRED = (*COUNTERS, CLOCK, DURATIONS[0])
"""Columns without which a record is useless."""

PARTS = (*DURATIONS[1:], OTHER, CPU_WAIT)
"""Parts of a step, if they are measured."""

LOADER = "loader_seconds"
"""Time that the loader's workers need for the batches of a step, concurrently with the step."""

COUNTS = ("tokens", "samples", "microbatches", "steps")
"""Size of a rank's batch, micro-batches of its step, and the number of steps that a record
averages."""

GROUP_COLUMNS = ("pp_stage", "tp_group", "dp_group")
MARKS = ("attempt", "flags", TIMING)

FLOATS = (DURATIONS[0], *PARTS, *COUNTS, LOADER)
WHOLE = (*GROUP_COLUMNS, *MARKS)
USED = (*COUNTERS, CLOCK, *FLOATS, *WHOLE)
"""All columns that are read."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Usable records.

    Args:
        row: number of each in its source.
        step: step counter.
        rank: global rank.
        node: index of the node's name.
        start: start of the step by the clock of the rank's node.
        floats: those of `FLOATS` that are recorded, NaN where one is unknown.
        whole: those of `WHOLE` that are recorded, -1 where one is unknown.
    """

    row: Integers
    step: Integers
    rank: Integers
    node: Integers
    start: Floats
    floats: Mapping[str, Floats]
    whole: Mapping[str, Integers]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.row)

    @property
    def duration(self) -> Floats:
        """Return how long each step took."""
        return self.floats[DURATIONS[0]]

    @property
    def end(self) -> Floats:
        """Return when each record's (last) step ended, by the clock of its node."""
        steps = self.floats.get("steps")
        if steps is None:
            return np.asarray(self.start + self.duration)
        return np.asarray(self.start + self.duration * np.where(steps >= 1, steps, 1.0))

    @property
    def groups(self) -> Mapping[str, Integers]:
        """Return the groups that the records give, by column."""
        return {name: self.whole[name] for name in GROUP_COLUMNS if name in self.whole}

    def at(self, index: Integers | Booleans | slice) -> Rows:
        """Return the records at an index."""
        return Rows(
            self.row[index], self.step[index], self.rank[index], self.node[index],
            self.start[index], {name: values[index] for name, values in self.floats.items()},
            {name: values[index] for name, values in self.whole.items()},
        )  # fmt: skip


def rows_of(table: Table, row: Integers, keep: Booleans | None) -> Rows:
    """Return the records of a cleaned table; `keep` marks the usable ones, None for all."""
    return Rows(
        row if keep is None else row[keep],
        _whole(table["step"], keep),
        _whole(table["rank"], keep),
        _whole(table["node"], keep),
        _float(table[CLOCK], keep),
        {name: _float(table[name], keep) for name in FLOATS if name in table},
        {name: _whole(table[name], keep) for name in WHOLE if name in table},
    )


def usable_rows(records: RecordTable, account: Account, world: int | None = None) -> Iterator[Rows]:
    """Yield the records that can be used in order of their start, numbered consecutively.

    Args:
        records: all of them.
        account: where the others are counted; the records that it has already seen come before
            these.
        world: number of ranks, None to take it from the records.

    Raises:
        RecordError: a column is missing, or none of the first ones is usable.
    """
    step_records.require(records.columns, REQUIRED)
    columns = tuple(name for name in USED if name in records.columns)
    rules = Rules(REQUIRED, tuple(name for name in PARTS if name in columns), world)
    before = account.seen
    used = 0
    for batch in records.batches(columns):
        row = batch.row + before
        keep = step_records.usable(batch.table, rules, row, account)
        rows = rows_of(batch.table, row, keep)
        used += len(rows)
        yield rows
    if not used and not before:
        raise account.nothing_left()


def first_of_each(rows: Rows, cell: Integers, size: int, account: Account) -> Booleans | None:
    """Return which records are the first in their cell, None if all are; count the others.

    Args:
        rows: in order of their start.
        cell: one of `size` cells for each.
        size: number of cells.
        account: where records are counted that repeat an earlier one, or contradict it.
    """
    first = np.full(size, -1, dtype=np.int64)
    first[cell[::-1]] = np.arange(len(cell), dtype=np.int64)[::-1]
    if np.count_nonzero(first >= 0) == len(cell):
        return None
    before = first[cell]
    once = np.asarray(before == np.arange(len(cell)))
    again = np.flatnonzero(~once)
    contested = _is_of_another(rows, again, before[again])
    for which, dropped in ((~contested, _duplicates), (contested, _of_two)):
        if which.any():
            account.add(dropped(rows.row[again[which]]))
    return once


CONTESTED = "contested"
"""Why a record is left out if another process reports as the same rank."""

SAME_SECONDS = 1e-3
"""A record that is delivered twice has the same times up to the precision of the transport."""


def _is_of_another(rows: Rows, again: Integers, before: Integers) -> Booleans:
    """Return which repeated records are another process's: their times differ from the first."""
    times = (rows.start, *(rows.floats[name] for name in DURATIONS if name in rows.floats))
    apart = [np.abs(values[again] - values[before]) for values in times]
    return np.asarray(np.fmax.reduce(apart) > SAME_SECONDS)


def _duplicates(row: Integers) -> Dropped:
    return Dropped("duplicate", len(row), int(row.min()), "its rank has reported that step before")


def _of_two(row: Integers) -> Dropped:
    what = "its rank has reported that step with other times: two processes claim one rank"
    return Dropped(CONTESTED, len(row), int(row.min()), what)


def marked_steps(rows: Rows, index: Integers, count: int) -> Booleans:
    """Return (count,) true for steps that any rank's probe marked as evaluation or start-up.

    Args:
        rows: records with the column `flags`.
        index: of each record's step.
        count: number of steps.
    """
    flags = np.maximum(rows.whole["flags"], 0)
    found = np.zeros(count, dtype=np.bool_)
    found[index[(flags & (FLAG_EVALUATION | FLAG_FIRST)) != 0]] = True
    return found


def dense(cell: Integers, values: Floats, size: int) -> Floats:
    """Return `size` values, NaN where no record has one."""
    matrix = np.full(size, np.nan)
    matrix[cell] = values
    return matrix


def join(parts: Sequence[Rows]) -> Rows:
    """Return records one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        _joined(parts, lambda rows: rows.row),
        _joined(parts, lambda rows: rows.step),
        _joined(parts, lambda rows: rows.rank),
        _joined(parts, lambda rows: rows.node),
        np.concatenate([rows.start for rows in parts]),
        {name: _floats(parts, name) for name in dict.fromkeys(n for p in parts for n in p.floats)},
        {name: _marks(parts, name) for name in dict.fromkeys(n for p in parts for n in p.whole)},
    )


def _floats(parts: Sequence[Rows], name: str) -> Floats:
    return np.concatenate([rows.floats.get(name, np.full(len(rows), np.nan)) for rows in parts])


def _marks(parts: Sequence[Rows], name: str) -> Integers:
    unknown = [np.full(len(rows), -1, dtype=np.int64) for rows in parts]
    return np.concatenate(
        [rows.whole.get(name, lacking) for rows, lacking in zip(parts, unknown, strict=True)]
    )


def _joined(parts: Sequence[Rows], column: Callable[[Rows], Integers]) -> Integers:
    return np.concatenate([column(rows) for rows in parts])


def _whole(values: npt.NDArray[Any], keep: Booleans | None) -> Integers:
    """Return integers, -1 for unknown values and for those out of range for a group or mark."""
    chosen = values if keep is None else values[keep]
    if chosen.dtype.kind == "f":
        known = np.abs(chosen) <= LARGEST_WHOLE
        chosen = np.where(known, chosen, -1.0)
    return np.asarray(chosen.astype(np.int64, copy=False))


LARGEST_WHOLE = 2.0**53
"""Larger floats are not exact integers, and soon exceed 64 bits."""


def _float(values: npt.NDArray[Any], keep: Booleans | None) -> Floats:
    chosen = values if keep is None else values[keep]
    return np.asarray(chosen.astype(np.float64, copy=False))
