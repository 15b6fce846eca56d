"""Averages short steps, so that what is compared lasts long enough to be meaningful.

A window of sixteen steps of 20 ms is a third of a second, within the jitter of a busy node. Steps
shorter than `BIN_SECONDS` are therefore averaged until they have lasted that long together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats

BIN_SECONDS = 0.125
"""With it, a window of sixteen is two seconds: many time slices of a scheduler."""


class StepAverager:
    """Adds up quantities of steps until they have lasted long enough.

    Args:
        long_enough: seconds.
    """

    __slots__ = ("_known", "_long_enough", "_seconds", "_sums")

    def __init__(self, long_enough: float = BIN_SECONDS) -> None:
        self._long_enough = long_enough
        self._sums: dict[str, Floats] = {}
        self._known: dict[str, Floats] = {}
        self._seconds = 0.0

    def add(
        self, now: Mapping[str, Floats], seconds: float, steps: float
    ) -> Mapping[str, Floats] | None:
        """Add one step; return the means once there are enough.

        Args:
            now: its quantities, NaN where one is unknown.
            seconds: duration of the step.
            steps: number of steps that it already averages.
        """
        if not self._sums and seconds * steps >= self._long_enough:
            return now
        for name, value in now.items():
            values = np.asarray(value, dtype=np.float64)
            known = np.isfinite(values)
            self._sums[name] = self._sums.get(name, 0.0) + np.where(known, values, 0.0)
            self._known[name] = self._known.get(name, 0.0) + known
        self._seconds += seconds * steps
        if self._seconds < self._long_enough:
            return None
        with np.errstate(invalid="ignore"):
            means = {
                name: np.asarray(total / self._known[name]) for name, total in self._sums.items()
            }
        self._sums, self._known, self._seconds = {}, {}, 0.0
        return means
