"""Decides when to query a node's Flight Recorders, so that they cost at most 1 % of a core.

Looks happen on a grid of Unix times, so that the windows of different nodes cover the same steps: a
node on which they are dearer looks at every second, fourth ... of the others' times.
"""

from __future__ import annotations

CORE_SHARE = 0.01
"""Of one core, for the node together: what the agent uses, and training processes use to dump."""

FIRST_PERIOD_SECONDS = 15.0
"""Finest grid: 2,000 entries hold 15 s of a job that launches 133 collectives a second."""

LAST_PERIOD_SECONDS = FIRST_PERIOD_SECONDS * 64
"""Coarsest grid, 16 minutes: sixteen sampled windows of 8 dear ranks in a job of 4 hours."""

SAVED_SECONDS = 3.0
"""Cost that may be saved up while no job trains, for a first look soon after a job begins: that of
five minutes, so that over any longer time the share holds."""

FIRST_SAVED_SECONDS = 1.0
"""What a new agent starts with: enough for one look at eight ranks."""

ASSUMED_SECONDS = 0.1
"""Cost of asking a rank that was not asked yet: half of the largest measured."""


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
        """Return True if a look that will cost this much is due; if so it counts as begun."""
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
        """Take the cost of a look; what it cost more than expected is saved up before the next."""
        self.spent += seconds
        self._saved -= seconds


def period(expected_seconds: float) -> float:
    """Return the finest grid on which looks that cost this much stay within the share."""
    step = FIRST_PERIOD_SECONDS
    while step * CORE_SHARE < expected_seconds and step < LAST_PERIOD_SECONDS:
        step *= 2
    return step
