"""Which step records are usable, and what is wrong with the others.

Every analysis of running agents and of traces begins here, so that a bad record is left out for the
same reason everywhere, is counted, and can be located in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers

COUNTERS = ("step", "rank")
CLOCK = "t_start_unix_seconds"
DURATIONS = ("step_seconds", "data_seconds", "compute_seconds", "sync_seconds")
OTHER = "other_seconds"
CPU_WAIT = "cpu_wait_seconds"
TIMING = "timing_source"

SAMPLED = "sampled"
TIMINGS: Mapping[str, int] = {"kernel": 1, "wall": 2, "host": 2, "sampled": 2}
"""How compute was timed, as a number: by the GPU's kernels, or by the host's clock (in all steps,
or in samples), which includes waits and stalls. 0 means not timed."""

LARGEST_COUNTER = 2.0**53
"""Larger counters are not exact as floats, and no job counts that far."""

LONGEST_SECONDS = 1e9
"""Thirty years: no step takes that long, and sums of such values overflow."""

LATEST_SECONDS = 2.5e11
"""Unix time of the year 9892: later starts are invalid."""

MAXIMUM_RANK = 1_048_575
"""As in ring files: 64 times the 16,384 ranks that Rankscope is built for. Ranks up to the largest
are counted individually, so that a rank of ten digits would take all memory."""

Table = Mapping[str, npt.NDArray[Any]]
"""Numeric columns of one length by name."""


class RecordError(ValueError):
    """The records cannot be analysed; the message states what was seen and what was expected."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes a record usable.

    Args:
        required: columns that must hold a number in every record.
        optional: durations that may be unknown, but neither negative nor infinite.
        world: ranks that the job has, None if unknown.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    world: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Records that were left out for one reason.

    Args:
        reason: an adjective: incomplete, negative, infinite, fractional, oversized, foreign,
            duplicate, late, scattered.
        count: how many.
        row: number of the first such record in its source, counted from 1 without the header.
        what: what is wrong with that record: the column and its value.
    """

    reason: str
    count: int
    row: int
    what: str

    def __str__(self) -> str:
        """Return the sentence for people."""
        were = "records were" if self.count > 1 else "record was"
        return (
            f"{self.count} {self.reason} {were} left out, the first in row {self.row}: {self.what}"
        )


class Account:
    """Counts what is left out as records pass by, in the order in which the reasons first occur."""

    __slots__ = ("_by_reason", "seen")

    def __init__(self) -> None:
        self._by_reason: dict[str, Dropped] = {}
        self.seen = 0

    def add(self, dropped: Dropped) -> None:
        """Count records; the one in the lowest row is the example for its reason."""
        known = self._by_reason.get(dropped.reason)
        if known is None:
            self._by_reason[dropped.reason] = dropped
            return
        first = min(known, dropped, key=lambda item: item.row)
        self._by_reason[dropped.reason] = replace(first, count=known.count + dropped.count)

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Return what has been left out so far."""
        return tuple(sorted(self._by_reason.values(), key=lambda item: item.row))

    def nothing_left(self) -> RecordError:
        """Return the error that explains why no record could be used."""
        why = "; ".join(
            f"{item.count} {item.reason}, the first in row {item.row}: {item.what}"
            for item in self.dropped
        )
        return RecordError(f"none of {self.seen} records can be used: {why or 'there are none'}")


def require(columns: Iterable[str], required: Sequence[str]) -> None:
    """Check that the columns exist.

    Raises:
        RecordError: some do not.
    """
    have = list(columns)
    missing = [name for name in required if name not in have]
    if missing:
        raise RecordError(f"records lack the columns {missing}, have {have}")


def numeric(values: pd.Series[Any]) -> npt.NDArray[Any]:
    """Return a column as whole numbers or floats, without a copy if it already is one.

    Values that are not numbers become NaN.
    """
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "if":
        return np.asarray(values.to_numpy())
    return np.asarray(pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan))


def timings(values: pd.Series[Any]) -> Integers:
    """Return how each record's compute was timed, one of the values of `TIMINGS` or 0."""
    codes, names = pd.factorize(values)
    known = np.array([TIMINGS.get(str(name), 0) for name in names] + [0], dtype=np.int64)
    return np.asarray(known[codes])


def end_on_devices(other: Floats) -> bool:
    """Return True if devices end the steps of a job, and hosts theirs as early as they like.

    Probes know what follows a step's compute, `OTHER`, where the host itself computes. Of a
    device's steps they know it only of those with checkpoints or evaluations.

    Args:
        other: of records, NaN where it is unknown.
    """
    return int(np.isnan(other).sum()) * 2 > len(other)


def usable(table: Table, rules: Rules, rows: Integers, account: Account) -> Booleans | None:
    """Return which records can be used, None if all can, and account for the others.

    Args:
        table: the columns that the rules are about.
        rules: what makes a record usable.
        rows: number of each record in its source.
        account: where the others are counted.
    """
    account.seen += len(rows)
    if all(_is_fine(table[name], name, rules) for name in (*rules.required, *rules.optional)):
        return None
    keep = np.ones(len(rows), dtype=np.bool_)
    for reason, is_bad, names in _REASONS:
        for name in (n for n in (*rules.required, *rules.optional) if names(n, rules)):
            bad = keep & is_bad(table[name], rules)
            if bad.any():
                keep &= ~bad
                account.add(_dropped(reason, bad, table[name], name, rows, rules))
    return keep


def _is_fine(values: npt.NDArray[Any], name: str, rules: Rules) -> bool:
    """Return True if a column is valid, in two passes; NaN fails every comparison."""
    if not len(values):
        return True
    low, high = values.min(), values.max()
    if name == CLOCK:
        return bool(low > -LATEST_SECONDS and high < LATEST_SECONDS)
    limit = (rules.world or MAXIMUM_RANK + 1) if name == "rank" else LARGEST_COUNTER
    if name in COUNTERS:
        whole = values.dtype.kind == "i" or bool((values == np.floor(values)).all())
        return bool(low >= 0 and high < limit and whole)
    least = low > 0 if name == DURATIONS[0] else low >= 0
    return bool(least and high < LONGEST_SECONDS)


def _dropped(
    reason: str,
    bad: Booleans,
    values: npt.NDArray[Any],
    name: str,
    rows: Integers,
    rules: Rules,
) -> Dropped:
    first = int(np.flatnonzero(bad)[np.argmin(rows[bad])])
    value = values[first]
    problem = "missing or not a number" if np.isnan(value) else _shown(value)
    limit = f", the world has {rules.world} ranks" if reason == "foreign" and rules.world else ""
    return Dropped(reason, int(bad.sum()), int(rows[first]), f"{name} is {problem}{limit}")


def _shown(value: float) -> str:
    return f"{value:g}" if np.isfinite(value) else "infinite"


def _is_foreign(values: npt.NDArray[Any], rules: Rules) -> Booleans:
    return np.asarray(values >= (rules.world or MAXIMUM_RANK + 1))


_REASONS: tuple[
    tuple[str, Callable[[npt.NDArray[Any], Rules], Booleans], Callable[[str, Rules], bool]],
    ...,
] = (
    ("incomplete", lambda v, _: np.isnan(v), lambda name, rules: name in rules.required),
    ("infinite", lambda v, _: np.isinf(v), lambda name, rules: True),
    ("negative", lambda v, _: np.asarray(v < 0), lambda name, rules: name != CLOCK),
    ("timeless", lambda v, _: np.asarray(v == 0), lambda name, _: name == DURATIONS[0]),
    ("fractional", lambda v, _: np.asarray(v > np.floor(v)), lambda name, rules: name in COUNTERS),
    (
        "oversized",
        lambda v, _: np.asarray(v >= LARGEST_COUNTER),
        lambda name, rules: name == "step",
    ),
    (
        "oversized",
        lambda v, _: np.asarray(v >= LONGEST_SECONDS),
        lambda name, rules: name != CLOCK and name not in COUNTERS,
    ),
    (
        "oversized",
        lambda v, _: np.asarray(np.abs(v) >= LATEST_SECONDS),
        lambda name, rules: name == CLOCK,
    ),
    ("foreign", _is_foreign, lambda name, rules: name == "rank"),
)
"""Reason, test, and the columns it applies to; a record has the first reason that applies."""
