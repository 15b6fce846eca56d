"""Decides when to query a node's Flight Recorders, so that they take at most 1 % of a core.

Queries happen on a grid of Unix times, so that the windows of different nodes cover the same steps:
a node on which they cost more queries at every second, fourth ... time of the others.
"""

from __future__ import annotations

CORE_SHARE = 0.01
"""Share of one core, for the whole node: the agent's time, and the time that training processes
spend on dumps."""

FIRST_PERIOD_SECONDS = 15.0
"""Finest grid: 2,000 entries cover 15 s of a job that launches 133 collectives a second."""

LAST_PERIOD_SECONDS = FIRST_PERIOD_SECONDS * 64
"""Coarsest grid, 16 minutes: sixteen sampled windows of 8 expensive ranks in a job of 4 hours."""

SAVED_SECONDS = 3.0
"""Cost that may be saved up while no job trains, for a first query soon after a job begins: that of
five minutes, so that the share holds over any longer time."""

FIRST_SAVED_SECONDS = 1.0
"""Initial savings of a new agent: enough for one query of eight ranks."""

ASSUMED_SECONDS = 0.1
"""Assumed cost of a rank that has not been queried yet: half of the largest measured cost."""


class Budget:
    """Cost spent and saved, in seconds of one core.

    Args:
        now_unix_seconds: when the agent began.
    """

    def __init__(self, now_unix_seconds: float) -> None:
        self.spent = 0.0
        self._saved = FIRST_SAVED_SECONDS
        self._saved_at = now_unix_seconds
        self._looked_at = now_unix_seconds

    def due(self, now_unix_seconds: float, expected_seconds: float) -> bool:
        """Return True if a query of this cost is due; if so it counts as begun."""
        earned = CORE_SHARE * max(0.0, now_unix_seconds - self._saved_at)
        self._saved = min(SAVED_SECONDS, self._saved + earned)
        self._saved_at = now_unix_seconds
        step = period(expected_seconds)
        crossed = now_unix_seconds // step != self._looked_at // step
        if not crossed or self._saved < min(expected_seconds, SAVED_SECONDS):
            return False
        self._looked_at = now_unix_seconds
        return True

    def spend(self, seconds: float) -> None:
        """Deduct the cost of a query; any excess must be saved up before the next one."""
        self.spent += seconds
        self._saved -= seconds


def period(expected_seconds: float) -> float:
    """Return the finest grid on which queries of this cost stay within the share."""
    step = FIRST_PERIOD_SECONDS
    while step * CORE_SHARE < expected_seconds and step < LAST_PERIOD_SECONDS:
        step *= 2
    return step
