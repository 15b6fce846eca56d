"""Work that only rank 0 does while all others wait: checkpoints, evaluations, logging.

Many jobs are written that way, so it is reported with its cost and not as a fault. If it takes far
longer than before, the storage that it writes to is slow.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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

STALLS = 64
"""Stalls of rank 0 that are searched for equal distances."""

FEWEST_STALLS = 3
"""Stalls that show a distance: if two distances are equal by chance, the next one differs."""

LEAST_DISTANCE = 5
"""Steps between two of them: what happens more often is part of the pace."""

REGULAR_SHARE = 0.7
"""Share of the stalls that must fall on such steps, and of these steps that must have one."""


@dataclass(frozen=True, slots=True)
class RankZeroWaits:
    """In how many steps all ranks waited for rank 0, and for how many seconds in total."""

    steps: int = 0
    seconds: float = 0.0


NO_WAITS = RankZeroWaits()


class RankZeroWork:
    """The work of a job's rank 0, or of the first ranks of its nodes; bounded memory."""

    __slots__ = ("_counted", "_last", "_slow", "_slow_seconds", "_stalls", "_usual", "waits")

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=REMEMBERED)
        self._slow = 0
        self._slow_seconds = 0.0
        self._last: int | None = None
        self._stalls: deque[tuple[int, float]] = deque(maxlen=STALLS)
        self._counted = -1
        self.waits = NO_WAITS

    @property
    def regular_stalls(self) -> frozenset[int]:
        """Return the steps at equal distances in which rank 0 alone stalled.

        No host counts the steps of a job: what comes every ten steps is what the program does then.
        """
        return _at_equal_distances([step for step, _ in self._stalls])

    def add_stall(self, counter: int, seconds: float) -> None:
        """Add a step that rank 0 made longer than others.

        The same work makes one step twice as long as others, and the next one not quite: those that
        are taken for work at once (0 seconds here) show the distance of the others, too.
        """
        if self._stalls and counter <= self._stalls[-1][0]:
            self._stalls.clear()  # the job was resumed from a checkpoint
            self._counted = -1
        self._stalls.append((counter, seconds))
        regular = self.regular_stalls
        fresh = [(step, lasted) for step, lasted in self._stalls if step > self._counted]
        new = [lasted for step, lasted in fresh if step in regular and lasted]
        self._counted = max(self._counted, *regular, -1)
        self.waits = RankZeroWaits(self.waits.steps + len(new), self.waits.seconds + sum(new))

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
        self.add_stall(counter, 0.0)
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


def _at_equal_distances(steps: Sequence[int]) -> frozenset[int]:
    """Return those of ascending steps that have equal distances, none if too many have not."""
    if len(steps) < FEWEST_STALLS:
        return frozenset()
    apart = [later - earlier for earlier, later in pairwise(steps)]
    distance = Counter(apart).most_common(1)[0][0]
    if distance < LEAST_DISTANCE:
        return frozenset()
    phase = Counter(step % distance for step in steps).most_common(1)[0][0]
    found = [step for step in steps if step % distance == phase]
    due = (found[-1] - found[0]) // distance + 1
    enough = max(FEWEST_STALLS, REGULAR_SHARE * len(steps), REGULAR_SHARE * due)
    return frozenset(found if len(found) >= enough else ())
