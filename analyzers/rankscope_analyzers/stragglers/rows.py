"""Step records as arrays of equal length, on their way from the source to the steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps.records import (
    CLOCK,
    COUNTERS,
    CPU_WAIT,
    DURATIONS,
    OTHER,
    TIMING,
    Table,
)

REQUIRED = (*COUNTERS, CLOCK, DURATIONS[0])
"""Columns without which a record is useless."""

PARTS = (*DURATIONS[1:], OTHER, CPU_WAIT)
"""Parts of a step, each where it is measured."""

COUNTS = ("tokens", "samples", "microbatches", "steps")
"""Size of a rank's batch, micro-batches of its step, and the number of steps that a record
averages."""

GROUP_COLUMNS = ("pp_stage", "tp_group", "dp_group")
MARKS = ("attempt", "flags", TIMING)

FLOATS = (DURATIONS[0], *PARTS, *COUNTS)
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
        start: wall clock of the rank's node when the step began.
        floats: of `FLOATS` those that are recorded, NaN where one is unknown.
        whole: of `WHOLE` those that are recorded, -1 where one is unknown.
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
        """Return the groups that the records name, by column."""
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
    """Return integers, -1 for unknown values and for those that no group or mark can have."""
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
