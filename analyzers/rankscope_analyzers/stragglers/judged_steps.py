"""Steps of a block on their way through the detector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.stragglers.quantities import Quantities


class Step(NamedTuple):
    """One step.

    Args:
        counter: its step counter.
        clock: newest record clock so far.
        executed: how many steps the run has executed with it.
        marked: the probe marked it as special.
        duration: its longest step time.
        timed: share of the ranks whose compute was timed.
        averages: number of steps that it stands for.
    """

    counter: int
    clock: float
    executed: int
    marked: bool
    duration: float
    timed: float
    averages: float


@dataclass(frozen=True, slots=True)
class UsableSteps:
    """Steps that can be compared.

    Args:
        now: quantities that contain theirs.
        rows: of the steps in them.
        counters: of each.
        clocks: at the end of each.
        judged_at: clock when each was judged.
    """

    now: Quantities
    rows: Integers
    counters: Sequence[int]
    clocks: Sequence[float]
    judged_at: Sequence[float]


@dataclass(slots=True)
class JudgedSteps:
    """Consecutive steps of which enough ranks are known.

    Args:
        now: their quantities.
        counters: see `Step`, as for the other arrays.
        most_at_once: how many are pushed at once.
        waiting: rows of those that are to be pushed next.
    """

    now: Quantities
    counters: Integers
    clocks: Floats
    executed: Integers
    marked: Booleans
    most_at_once: int
    waiting: list[int] = field(default_factory=list)

    def each(self) -> Iterator[Step]:
        """Yield the steps in order."""
        columns = (
            self.counters, self.clocks, self.executed, self.marked, self.now.duration,
            self.now.timed, self.now.steps,
        )  # fmt: skip
        return map(Step._make, zip(*(one.tolist() for one in columns), strict=True))

    def usable(self) -> UsableSteps:
        """Return the steps that wait: none does any more."""
        rows = np.array(self.waiting, dtype=np.int64)
        self.waiting.clear()
        clocks = self.clocks[rows].tolist()
        return UsableSteps(self.now, rows, self.counters[rows].tolist(), clocks, clocks)
