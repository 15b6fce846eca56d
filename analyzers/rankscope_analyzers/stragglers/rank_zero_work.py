"""Work that only rank 0 does while all others wait: checkpoints, evaluations, logging.

Many jobs are written that way, so it is reported with its cost and not as a fault. If it takes far
longer than before, the storage that it writes to is slow.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median as middle

from rankscope_analyzers.stragglers.view import Candidate

SLOWER = 2.0
"""Times the usual length, twice in a row: as for checkpoints that all ranks write."""

IN_A_ROW = 2
"""One slow checkpoint may be another job's burst on the same file system."""

REMEMBERED = 12
"""Pieces of work whose median is the usual length."""

FEWEST = 2
"""Pieces of work of usual length that are needed before one can be slow."""

ALIKE = 2.0
"""Largest ratio of the longest to the shortest that are remembered: beyond it, the work is of
several kinds and has no usual length."""

MINIMUM_SECONDS = 0.1
"""Shorter work waits for the scheduler rather than for a disk."""

MINIMUM_COST = 0.015
"""Share of the time between two checkpoints; the contract counts from 2 %."""


@dataclass(frozen=True, slots=True)
class RankZeroWaits:
    """In how many steps all ranks waited for rank 0, and for how many seconds in total."""

    steps: int = 0
    seconds: float = 0.0


NO_WAITS = RankZeroWaits()


class RankZeroWork:
    """The work of a job's rank 0, or of the first ranks of its nodes; bounded memory."""

    __slots__ = ("_last", "_slow", "_slow_seconds", "_usual", "waits")

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=REMEMBERED)
        self._slow = 0
        self._slow_seconds = 0.0
        self._last: int | None = None
        self.waits = NO_WAITS

    def add(
        self, counter: int, seconds: float, step_seconds: float
    ) -> tuple[bool, Candidate | None]:
        """Add one piece of work; return whether it took its usual time, and the fault if any.

        Args:
            counter: step counter.
            seconds: duration of the work.
            step_seconds: duration of ordinary steps.
        """
        self.waits = RankZeroWaits(self.waits.steps + 1, self.waits.seconds + seconds)
        since, self._last = abs(counter - (self._last or 0)), counter
        usual = middle(self._usual) if self._usual else seconds
        if self._is_slow(seconds):
            self._slow += 1
            between = since * step_seconds + seconds
            self._slow_seconds += between
            cost = (seconds - usual) / between
            if self._slow < IN_A_ROW or cost < MINIMUM_COST:
                return False, None
            return False, Candidate(
                "storage_checkpoint", cost, (), -1, seconds, usual, shown_by="checkpoint",
                lasted_seconds=self._slow_seconds,
            )  # fmt: skip
        self._slow, self._slow_seconds = 0, 0.0
        self._usual.append(seconds)
        return True, None

    def _is_slow(self, seconds: float) -> bool:
        if len(self._usual) < FEWEST or seconds < MINIMUM_SECONDS:
            return False
        longest = max(self._usual)
        return longest < ALIKE * min(self._usual) and seconds > SLOWER * longest
