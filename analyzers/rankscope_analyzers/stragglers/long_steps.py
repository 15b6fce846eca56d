"""Single steps that are several times as long as usual: whose they are, and what they are.

They are kept out of what is compared: one checkpoint of 30 s outweighs a rank that is a fifth
slower for all the steps in between. Steps that stay long are no exception but the new pace, and are
handed on with a short delay.
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
"""And longer by at least the turn of a scheduler."""

PACE_STEPS = 30
"""Steps whose median is the usual duration."""

LEAST_STEPS = 6
"""Steps before which nothing is usual yet."""

MOST_IN_A_ROW = 3
"""Long steps that may follow each other; with one more they are the pace."""

SMOOTHING = 0.15
"""Weight of a step in what is usual for a rank."""

SHARE_OF_WORST = 0.5
"""Ranks with at least this part of the longest excess made the step long together, and whoever
explains less than this part of what the step took longer did not make it long."""

MOST_TOGETHER = 0.5
"""When more ranks than this did, it was what all do at once: an evaluation, say."""

ALONE = 2.0
"""Times any other rank's excess: who is not clearly the longest is not said to be the reason."""

REGULAR_STEPS = 5
"""Steps at least from one checkpoint to the next: what comes more often is the pace."""

REMEMBERED = 64
"""Long steps among which those that come at equal distances are looked for."""

MINIMUM_REPEATS = 3
"""Earlier ones at the same distance that make a long step a regular one."""

SIMILAR_LENGTH = 0.1
"""Part of its length that the earlier ones took at least: slow storage makes one five times, and
ten times, as long as they were."""

IN_OTHER = 0.7
"""Part of the excess that lies outside of input, compute and exchange where somebody writes a
checkpoint, evaluates or logs."""


@dataclass(frozen=True, slots=True)
class LongStep:
    """One long step.

    Args:
        position: of the rank that made it long, -1 where all did or nobody can be told.
        seconds: by how much.
        times: how many usual steps it took.
        housekeeping: it is what first ranks do for all: writing, evaluating, logging.
        input: it waited for its input.
        excess: (P, D, T) what each rank spent beyond its usual, outside of collectives.
        by_rank_zero: first ranks alone made it long.
        waited: seconds that every rank waited in collectives beyond its usual.
    """

    position: int
    seconds: float
    times: float
    housekeeping: bool
    input: bool
    excess: Floats
    by_rank_zero: bool = False
    waited: float = 0.0


class RecurringSteps:
    """Long steps of one kind, to see which of them come as regularly as checkpoints do."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)

    def is_regular(self, counter: int, seconds: float) -> bool:
        """Take a long step; say whether several before it lie at equal distances."""
        known = {step for step, lasted in self._seen if lasted >= SIMILAR_LENGTH * seconds}
        self._seen.append((counter, seconds))
        return any(
            all(counter - number * distance in known for number in range(2, MINIMUM_REPEATS + 1))
            for distance in (counter - step for step in known)
            if distance >= REGULAR_STEPS
        )


class LongSteps:
    """Tells long steps of a run.

    Args:
        shape: arrangement of the ranks.
    """

    __slots__ = ("_busy", "_durations", "_parts", "_rank_zeros", "_waits")

    def __init__(self, shape: Shape) -> None:
        self._durations: deque[float] = deque(maxlen=PACE_STEPS)
        self._busy = np.full(shape.sizes, np.nan)
        self._waits = np.zeros(shape.sizes)
        self._parts = {name: np.full(shape.sizes, np.nan) for name in ("data", "rest", "sync")}
        self._rank_zeros = _rank_zeros(shape)

    def is_long(self, duration: float) -> bool:
        """Say whether a step is far longer than usual."""
        if len(self._durations) < LEAST_STEPS:
            return False
        usual = middle(self._durations)
        return duration > LONG * usual and duration > usual + LONG_SECONDS

    def learn(self, now: Quantities, row: int) -> None:
        """Take a step that shows what is usual."""
        self._durations.append(float(now.duration[row]))
        self._busy = _updated(self._busy, now.busy[row])
        if now.cpu_wait is not None:
            self._waits = _updated(self._waits, np.nan_to_num(now.cpu_wait[row]))
        self._parts = {
            "data": _updated(self._parts["data"], now.input[row]),
            "rest": _updated(self._parts["rest"], now.rest[row]),
            "sync": _updated(self._parts["sync"], now.sync[row]),
        }

    def describe(self, now: Quantities, row: int) -> LongStep:
        """Say who made a long step long; whoever waited for a CPU is judged elsewhere."""
        excess = now.busy[row] - self._busy
        if now.cpu_wait is not None:
            excess = excess - np.maximum(np.nan_to_num(now.cpu_wait[row]) - self._waits, 0.0)
        usual = middle(self._durations) if self._durations else np.inf
        times = float(now.duration[row]) / max(usual, 1e-9)
        flat = excess.ravel()
        waited = np.fmin.reduce(now.sync[row] - self._parts["sync"], axis=None)
        nobody = LongStep(
            -1, 0.0, times, housekeeping=False, input=False, excess=excess,
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
        if not few or most <= ALONE * float(others.max(initial=0.0)):
            return replace(nobody, seconds=most)
        for_input = float((now.input[row] - self._parts["data"]).ravel()[position])
        return LongStep(
            position, most, times, self._is_housekeeping(now, row, together, most),
            input=for_input > IN_OTHER * most, excess=excess,
            by_rank_zero=bool(self._rank_zeros[together].all()),
        )  # fmt: skip

    def _is_housekeeping(self, now: Quantities, row: int, together: Booleans, most: float) -> bool:
        """Say whether first ranks alone did what is neither input nor compute, if that is known."""
        if not self._rank_zeros[together].all():
            return False
        rest = (now.rest[row] - self._parts["rest"]).ravel()[together]
        known = rest[np.isfinite(rest)]
        return not now.rest_is_separate or bool((known > IN_OTHER * most).any())


def _rank_zeros(shape: Shape) -> Booleans:
    """Return which places hold the first rank of the job or of a node."""
    nodes = shape.nodes.ravel()
    ranks = np.arange(shape.world) if shape.ranks is None else shape.ranks.ravel()
    found = np.asarray(ranks == 0)
    for node in np.unique(nodes[nodes >= 0]):
        members: Integers = np.flatnonzero(nodes == node)
        if len(members) > 1:  # where a node has one rank, each rank is the first of its node
            found[members[np.argmin(ranks[members])]] = True
    return found


def _updated(usual: Floats, now: Floats) -> Floats:
    """Return what is usual after one more step; unknown values change nothing."""
    step = np.where(np.isfinite(usual), usual + SMOOTHING * (now - usual), now)
    return np.asarray(np.where(np.isfinite(now), step, usual))
