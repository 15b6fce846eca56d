"""Records as arrays of one length, as they pass from their source to the steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps.records import CLOCK, COUNTERS, DURATIONS, Table

REQUIRED = (*COUNTERS, CLOCK, *DURATIONS)
PLACES = ("pp_stage", "tp_group", "dp_group")


@dataclass(frozen=True, slots=True)
class Rows:
    """Usable records.

    Args:
        row: number of each in its source.
        step: step counter.
        rank: global rank.
        node: index of the node's name.
        start: wall clock of the rank's node when the step began.
        durations: of `DURATIONS`, in their order.
        places: of `PLACES` those that are recorded.
    """

    row: Integers
    step: Integers
    rank: Integers
    node: Integers
    start: Floats
    durations: tuple[Floats, ...]
    places: Mapping[str, Integers]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.row)

    @property
    def end(self) -> Floats:
        """Return when each record's step ended, by its own clock."""
        return np.asarray(self.start + self.durations[0])

    def at(self, index: Integers | Booleans | slice) -> Rows:
        """Return the records at an index."""
        return Rows(
            self.row[index], self.step[index], self.rank[index], self.node[index],
            self.start[index], tuple(values[index] for values in self.durations),
            {name: values[index] for name, values in self.places.items()},
        )  # fmt: skip


def rows_of(table: Table, row: Integers, keep: Booleans | None) -> Rows:
    """Return the records of a cleaned table; `keep` marks the usable ones, None for all."""
    return Rows(
        row if keep is None else row[keep],
        _whole(table["step"], keep),
        _whole(table["rank"], keep),
        _whole(table["node"], keep),
        _float(table[CLOCK], keep),
        tuple(_float(table[name], keep) for name in DURATIONS),
        {name: _whole(table[name], keep) for name in PLACES if name in table},
    )


def join(parts: Sequence[Rows]) -> Rows:
    """Return records one after the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Rows(
        _joined(parts, lambda rows: rows.row),
        _joined(parts, lambda rows: rows.step),
        _joined(parts, lambda rows: rows.rank),
        _joined(parts, lambda rows: rows.node),
        np.concatenate([rows.start for rows in parts]),
        tuple(
            np.concatenate([rows.durations[index] for rows in parts])
            for index in range(len(DURATIONS))
        ),
        {name: np.concatenate([rows.places[name] for rows in parts]) for name in first.places},
    )


def _joined(parts: Sequence[Rows], column: Callable[[Rows], Integers]) -> Integers:
    return np.concatenate([column(rows) for rows in parts])


def _whole(values: npt.NDArray[Any], keep: Booleans | None) -> Integers:
    """Return whole numbers, -1 for unknown ones."""
    chosen = values if keep is None else values[keep]
    if chosen.dtype.kind == "f":
        chosen = np.nan_to_num(chosen, nan=-1.0, posinf=-1.0, neginf=-1.0)
    return np.asarray(chosen.astype(np.int64, copy=False))


def _float(values: npt.NDArray[Any], keep: Booleans | None) -> Floats:
    chosen = values if keep is None else values[keep]
    return np.asarray(chosen.astype(np.float64, copy=False))
