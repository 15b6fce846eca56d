"""Exchanges of every n-th step only, as in local SGD and DiLoCo: ranks wait for each other there.

In the steps between nobody waits, so that a slow rank shows there by its compute alone; that the
others wait for it shows in steps that are several times as long as these.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.stragglers.long_steps import RecurringSteps

LATEST = 2
"""Distances after the newest exchange in which the next one must have come."""


class PeriodicExchanges:
    """The long steps of a run in which ranks waited and none computed longer; bounded memory."""

    __slots__ = ("_distance", "_newest", "_steps", "_waits")

    def __init__(self) -> None:
        self._steps = RecurringSteps()
        self._distance = self._newest = 0
        self._waits = np.zeros(0)

    def add(self, counter: int, waits: Floats) -> bool:
        """Add such a step; return True if it comes at the same distance as those before it.

        Args:
            counter: its step counter.
            waits: (P, D, T) seconds beyond the usual that each rank waited in collectives.
        """
        longest = float(np.fmax.reduce(waits, axis=None))
        self._distance = self._steps.distance(counter, longest) if longest > 0 else 0
        self._newest, self._waits = counter, waits
        return self._distance > 0

    def waits_per_step(self, counter: int) -> Floats | None:
        """Return (P, D, T) seconds for each step until the exchange; None if there is none.

        Args:
            counter: the newest step.
        """
        if not self._distance or counter - self._newest > LATEST * self._distance:
            return None
        return self._waits / self._distance
