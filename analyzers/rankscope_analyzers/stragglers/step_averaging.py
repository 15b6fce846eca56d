"""Averages short steps, so that what is compared lasts long enough to be meaningful.

A window of sixteen steps of 20 ms is a third of a second, within the jitter of a busy node. Steps
shorter than `BIN_SECONDS` are therefore averaged until they have lasted that long together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.stragglers.kept_steps import KeptSteps, flattened

BIN_SECONDS = 0.125
"""With it, a window of sixteen is two seconds: many time slices of a scheduler."""


@dataclass(frozen=True, slots=True)
class Means:
    """Means that are complete.

    Args:
        quantities: (n, ...) each.
        completed_by: index of the step that completed each.
    """

    quantities: Mapping[str, Floats]
    completed_by: Sequence[int]


class StepAverager:
    """Adds up quantities of steps until they have lasted long enough.

    Args:
        long_enough: seconds.
    """

    __slots__ = ("_known", "_long_enough", "_seconds", "_sums")

    def __init__(self, long_enough: float = BIN_SECONDS) -> None:
        self._long_enough = long_enough
        self._sums: dict[str, Any] = {}
        self._known: dict[str, Any] = {}
        self._seconds = 0.0

    def add(self, steps: KeptSteps, seconds: Sequence[float]) -> Iterator[Means]:
        """Add steps; yield the means that are complete with them.

        Args:
            steps: NaN where something is unknown.
            seconds: how long each lasted; as long as all that it averages, if it does.
        """
        ends = self._ends(seconds)
        if self._sums and list(self._sums) != list(steps.shapes):
            # What began without some of the quantities, or with others, is completed apart.
            begun = ends[0] + 1 if ends else len(steps)
            yield from self._add(self._with_those_begun(steps.part(0, begun)), ends[:1])
            steps, ends = steps.part(begun, len(steps)), [end - begun for end in ends[1:]]
            yield from (
                Means(one.quantities, [begun + end for end in one.completed_by])
                for one in self._add(steps, ends)
            )
        else:
            yield from self._add(steps, ends)

    def _ends(self, seconds: Sequence[float]) -> list[int]:
        """Return the indices of the steps with which enough have lasted long enough."""
        ends = []
        for index, lasted in enumerate(seconds):
            self._seconds += lasted
            if self._seconds >= self._long_enough:
                ends.append(index)
                self._seconds = 0.0
        return ends

    def _add(self, steps: KeptSteps, ends: Sequence[int]) -> Iterator[Means]:
        if not len(steps):
            return
        if len(ends) == len(steps) and not self._sums:
            yield Means(steps.quantities(), ends)  # each is long enough by itself
            return
        known = np.isfinite(steps.values)
        filled = np.where(known, steps.values, 0.0)
        means, first = np.empty((len(ends), steps.values.shape[1])), 0
        for number, end in enumerate(ends):
            if first == end and not self._sums:
                means[number] = steps.values[end]
            else:
                total, count = self._added(filled[first : end + 1], known[first : end + 1])
                with np.errstate(invalid="ignore"):
                    np.divide(total, count, out=means[number])
            self._sums, self._known, first = {}, {}, end + 1
        if first < len(steps):
            total, count = self._added(filled[first:], known[first:])
            self._sums, self._known = _by_name(steps, total), _by_name(steps, count)
        yield Means(KeptSteps(steps.shapes, means).quantities(), ends)

    def _added(self, filled: Floats, known: Any) -> tuple[Floats, Floats]:
        """Return the sums so far and of some more steps, and how many numbers are in each.

        Added one by one: else the last digit of a sum would depend on where blocks end.
        """
        total, count = np.zeros(filled.shape[1]), np.zeros(filled.shape[1])
        if self._sums:
            total, count = _row(self._sums), _row(self._known)
        for row in filled:
            total += row
        return total, count + np.add.reduce(known, axis=0, dtype=np.int64)

    def _with_those_begun(self, steps: KeptSteps) -> KeptSteps:
        """Return steps with the quantities of the sums besides their own, unknown in them."""
        size = len(steps)
        begun = {name: np.full((size, *np.shape(of)), np.nan) for name, of in self._sums.items()}
        union = flattened(begun | steps.quantities())
        added = {name: np.zeros_like(of[0]) for name, of in steps.quantities().items()}
        self._sums, self._known = added | self._sums, added | self._known
        self._sums = {name: self._sums[name] for name in union.shapes}
        self._known = {name: self._known[name] for name in union.shapes}
        return union


def _by_name(steps: KeptSteps, row: Floats) -> dict[str, Any]:
    return {name: of[0][()] for name, of in KeptSteps(steps.shapes, row[None]).quantities().items()}


def _row(quantities: dict[str, Any]) -> Floats:
    return np.concatenate([np.ravel(of) for of in quantities.values()])
