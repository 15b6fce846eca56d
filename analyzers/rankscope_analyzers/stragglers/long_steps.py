"""Single steps that take several times as long as usual: who made them long, and why.

They are not compared with other steps: one checkpoint of 30 s outweighs a rank that is 20 % slower
in all the steps in between. Steps that stay long are the new pace, and are passed on after a short
delay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from statistics import median as middle

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.stragglers.quantities import Quantities
from rankscope_analyzers.stragglers.shape import Shape

LONG = 2.0
"""Times the usual duration: stalls of hosts that are part of a job's pace are shorter."""

LONG_SECONDS = 0.003
"""And longer by at least one time slice of the scheduler."""

PACE_STEPS = 30
"""Steps whose median is the usual duration."""

LEAST_STEPS = 6
"""Steps needed before anything counts as usual."""

MOST_IN_A_ROW = 3
"""Consecutive long steps that are still exceptions; one more makes them the pace."""

SMOOTHING = 0.15
"""Weight of a step in a rank's usual duration."""

SHARE_OF_WORST = 0.5
"""Ranks with at least this fraction of the largest excess made the step long together. A rank that
explains a smaller fraction of the extra time did not make it long."""

MOST_TOGETHER = 0.5
"""If more ranks than this did, it was something that all do at once, such as an evaluation."""

ALONE = 2.0
"""Times any other rank's excess: a rank that does not clearly stand out is not the reason."""

REGULAR_STEPS = 5
"""Minimum number of steps between checkpoints: more frequent ones are part of the pace."""

REMEMBERED = 64
"""Long steps that are searched for equal distances."""

MINIMUM_REPEATS = 3
"""Consecutive distances that must be equal for a long step to be a regular one."""

SIMILAR_LENGTH = 0.1
"""Minimum length of the earlier ones, as a fraction of its own: slow storage makes a checkpoint
five or ten times as long."""

IN_OTHER = 0.7
"""Fraction of the excess outside of input, compute and exchange above which a rank was writing a
checkpoint, evaluating or logging."""


PARTS = range(5)
BUSY, INPUT, REST, SYNC, WAITS = PARTS
"""What a rank's time in a step is spent on, and how long it waited for a CPU meanwhile."""


@dataclass(frozen=True, slots=True)
class LongStep:
    """One long step.

    Args:
        position: of the rank that made it long, -1 if all did or none can be identified.
        seconds: beyond the usual duration.
        times: its duration divided by the usual one.
        housekeeping: True if rank 0 (or local rank 0) was writing, evaluating or logging for all.
        input: True if it waited for its input, or if all did.
        excess: (P, D, T) seconds beyond each rank's usual time outside of collectives.
        by_rank_zero: True if only ranks 0 of the job or of a node made it long.
        waited: seconds beyond its usual time that every rank waited in collectives.
        waits: (P, D, T) the same of each rank.
        by_next: seconds by which the next rank made it long, too; 0 if it did not.
        by_most: True if most of the others made it long, too.
    """

    position: int
    seconds: float
    times: float
    housekeeping: bool
    input: bool
    excess: Floats
    waits: Floats
    by_rank_zero: bool = False
    waited: float = 0.0
    by_next: float = 0.0
    by_most: bool = False


class RecurringSteps:
    """Remembers long steps of one kind, to find those that come as regularly as checkpoints."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)

    def is_regular(self, counter: int, seconds: float) -> bool:
        """Add a long step; return True if several steps before it have equal distances."""
        return self.distance(counter, seconds) > 0

    def distance(self, counter: int, seconds: float) -> int:
        """Add a long step; return its distance from each of several before it, 0 if unequal."""
        known = {step for step, lasted in self._seen if lasted >= SIMILAR_LENGTH * seconds}
        self._seen.append((counter, seconds))
        equal = (
            apart
            for apart in (counter - step for step in known)
            if apart >= REGULAR_STEPS
            and all(counter - number * apart in known for number in range(2, MINIMUM_REPEATS + 1))
        )
        return min(equal, default=0)


class LongSteps:
    """Finds the long steps of a run and describes them.

    Args:
        shape: arrangement of the ranks.
    """

    __slots__ = ("_durations", "_rank_zeros", "_usual")

    def __init__(self, shape: Shape) -> None:
        self._durations: deque[float] = deque(maxlen=PACE_STEPS)
        self._usual = np.full((len(PARTS), *shape.sizes), np.nan)
        self._usual[WAITS] = 0.0
        self._rank_zeros = _rank_zeros(shape)

    def is_rank_zero(self, position: int) -> bool:
        """Return True if a position holds rank 0 of the job or the first rank of a node."""
        return bool(self._rank_zeros[position])

    def is_long(self, duration: float) -> bool:
        """Return True if a step is far longer than usual."""
        if len(self._durations) < LEAST_STEPS:
            return False
        if duration <= LONG * min(self._durations):
            return False  # of most steps that is enough to know
        usual = middle(self._durations)
        return duration > LONG * usual and duration > usual + LONG_SECONDS

    def add_duration(self, duration: float) -> None:
        """Add the duration of an ordinary step; `learn` adds the rest of it."""
        self._durations.append(duration)

    def learn(self, now: Quantities, rows: Integers) -> None:
        """Add ordinary steps, whose durations are added already."""
        parts = _parts(now, rows)
        known = np.isfinite(parts)
        if (known & ~np.isfinite(self._usual)).any():
            for step in parts:
                self._usual = _updated(self._usual, step)
            return
        usual = self._usual.copy()
        for step, is_known in zip(parts, known, strict=True):
            np.add(usual, SMOOTHING * (step - usual), out=usual, where=is_known)
        self._usual = usual

    def describe(self, now: Quantities, row: int) -> LongStep:
        """Return who made a long step long; waits for a CPU are judged elsewhere."""
        more = _parts(now, np.array([row]))[0] - self._usual
        excess = more[BUSY]
        if now.cpu_wait is not None:
            excess = excess - np.maximum(more[WAITS], 0.0)
        usual = middle(self._durations) if self._durations else np.inf
        times = float(now.duration[row]) / max(usual, 1e-9)
        flat = excess.ravel()
        waited = np.fmin.reduce(more[SYNC], axis=None)
        nobody = LongStep(
            -1, 0.0, times, housekeeping=False, input=False, excess=excess, waits=more[SYNC],
            waited=float(np.nan_to_num(waited)),
        )  # fmt: skip
        if not np.isfinite(flat).any():
            return nobody
        position = int(np.nanargmax(flat))
        most = float(flat[position])
        longer = float(now.duration[row]) * (1 - 1 / times)
        if nobody.waited > most or most < SHARE_OF_WORST * longer:
            return nobody
        together = np.asarray(flat >= SHARE_OF_WORST * most)
        others = np.where(together, -np.inf, np.nan_to_num(flat, nan=-np.inf))
        few = together.sum() <= max(1, MOST_TOGETHER * int(np.isfinite(flat).sum()))
        next_one = float(others.max(initial=0.0))
        for_input = float(more[INPUT].ravel()[position])
        if not few or most <= ALONE * next_one:
            return replace(nobody, seconds=most, input=for_input > IN_OTHER * most)
        rest = more[REST].ravel()[together] if now.rest_is_separate else None
        return LongStep(
            position, most, times, self._is_housekeeping(together, rest, most),
            input=for_input > IN_OTHER * most, excess=excess, waits=more[SYNC],
            by_rank_zero=bool(self._rank_zeros[together].all()),
            by_next=next_one if next_one > (LONG - 1) * usual else 0.0,
            by_most=_median(others) > (LONG - 1) * usual,
        )  # fmt: skip

    def _is_housekeeping(self, together: Booleans, rest: Floats | None, most: float) -> bool:
        """Return True if only ranks 0 were busy outside of input and compute, if that is known."""
        if not self._rank_zeros[together].all():
            return False
        return rest is None or bool((rest[np.isfinite(rest)] > IN_OTHER * most).any())


def _median(values: Floats) -> float:
    """Return the median of the finite values, 0 if there is none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


def _rank_zeros(shape: Shape) -> Booleans:
    """Return which positions hold rank 0 of the job or the first rank of a node."""
    nodes = shape.nodes.ravel()
    ranks = np.arange(shape.world) if shape.ranks is None else shape.ranks.ravel()
    found = np.asarray(ranks == 0)
    for node in np.unique(nodes[nodes >= 0]):
        members: Integers = np.flatnonzero(nodes == node)
        if len(members) > 1:  # if nodes have one rank each, each rank is the first of its node
            found[members[np.argmin(ranks[members])]] = True
    return found


def _parts(now: Quantities, rows: Integers) -> Floats:
    """Return what each rank spent steps on, (n, len(PARTS), P, D, T), NaN where that is unknown.

    A rank whose waits for a CPU are not known beside those of others had none.
    """
    found = np.full((len(rows), len(PARTS), *now.busy.shape[1:]), np.nan)
    found[:, BUSY], found[:, INPUT] = now.busy[rows], now.input[rows]
    found[:, REST], found[:, SYNC] = now.rest[rows], now.sync[rows]
    if now.cpu_wait is not None:
        found[:, WAITS] = now.cpu_wait[rows]
        found[:, WAITS][np.isnan(found[:, WAITS])] = 0.0
    return found


def _updated(usual: Floats, now: Floats) -> Floats:
    """Return the moving average after one more step; unknown values change nothing."""
    step = np.where(np.isfinite(usual), usual + SMOOTHING * (now - usual), now)
    return np.asarray(np.where(np.isfinite(now), step, usual))
