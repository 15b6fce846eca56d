"""Find steps that end with a checkpoint or an evaluation, and compare the checkpoints.

In such a step even the smallest residual of all ranks is large. The next step contains the wait for
the slowest writer, so neither is compared with ordinary steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import groupby
from statistics import median

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.view import Candidate

ORDINARY_STEPS = 30
"""Steps over which the smallest residual is learned."""

LEAST_STEPS = 6
"""Steps needed before anything counts as ordinary."""

SMOOTHING = 0.15
"""Weight of a step in a rank's moving average: seven steps, faster than causes come and go."""

MOST_IN_A_ROW = 3
"""Consecutive special steps; if there are more, the residual itself has grown."""

JUMP_SHARE = 0.05
"""Share of the step by which the smallest residual must jump: writing takes longer."""

JUMP_SIGMAS = 8.0
"""And in standard deviations of its own noise, which has a long tail."""

NODE_RATIO = 1 / 0.6
"""Ratio of a node's time to that of the median node above which it alone is slow."""

SLOWER = 2.0
"""Ratio of the time to the usual one above which the shared storage is slow."""

UNEVEN = 0.02
"""Nodes take unequally long to write; an evaluation takes all of them equally long within this
share."""

KNOWN_UNEVEN = 0.04
"""The same for those that take as long as an even one did, within this share: of sixteen nodes, the
noise of one is beyond `UNEVEN` now and then."""

FEWEST_KNOWN = 4
"""Nodes from which on that holds: two or three write a checkpoint equally long by chance."""

SAME = 1.25
"""Ratio to the normal checkpoint, either way, within which an even special step may be one."""

IN_A_ROW = 2
"""One slow checkpoint may be another job's burst on the same file system."""

IN_A_ROW_ALONE = 3
"""On one node evaluations look like checkpoints, and two may follow each other."""

ENOUGH_IN_A_ROW = 6
"""Of several nodes, not even one of two is the slowest so often in a row by chance."""

REMEMBERED = 12
"""Checkpoints whose median is the normal time."""

LEADERS = 24
"""Checkpoints of which it is remembered which node was slow alone."""

FEWEST_ALONE = 3
"""Checkpoints that show what is normal on one node, where rollouts look like checkpoints as well:
the first one may be short by chance."""

MINIMUM_COST = 0.015
"""Share of the time between checkpoints; the contract counts from 2 %."""


class SpecialStepFilter:
    """Recognizes special steps by the residual of the rank whose residual grew least.

    Args:
        sizes: (P, D, T) of the run.
    """

    __slots__ = ("_after_special", "_durations", "_excesses", "_in_a_row", "_usual")

    def __init__(self, sizes: tuple[int, int, int]) -> None:
        self._usual = np.full(sizes, np.nan)
        self._excesses: deque[float] = deque(maxlen=ORDINARY_STEPS)
        self._durations: deque[float] = deque(maxlen=ORDINARY_STEPS)
        self._after_special = False
        self._in_a_row = 0

    def judge(self, rest: Floats, duration: float) -> tuple[bool, Floats | None]:
        """Return whether the step is ordinary, and if it is special, what each rank added to it.

        Args:
            rest: (P, D, T) residual of the step.
            duration: of the step.
        """
        grown = rest - self._usual
        excess = float(np.minimum.reduce(grown, axis=None))
        complete = excess == excess  # a NaN among them would be the smallest
        if not complete:
            excess = float(np.fmin.reduce(grown, axis=None))
        if len(self._excesses) >= LEAST_STEPS and self._jumps(excess):
            self._in_a_row += 1
            if self._in_a_row <= MOST_IN_A_ROW:
                self._after_special = True
                return False, grown
            self._usual = np.full_like(self._usual, np.nan)  # it is the pace from now on
            self._excesses.clear()
            grown = np.full_like(rest, np.nan)
            excess, complete = 0.0, False
        self._in_a_row = 0
        if complete:
            self._usual = self._usual + SMOOTHING * grown
        else:
            known = np.where(np.isfinite(grown), self._usual + SMOOTHING * grown, rest)
            self._usual = np.where(np.isfinite(rest), known, self._usual)
        if np.isfinite(excess):
            self._excesses.append(excess)
        self._durations.append(duration)
        after_special, self._after_special = self._after_special, False
        return not after_special, None

    def step_seconds(self) -> float:
        """Return the median duration of ordinary steps."""
        return median(self._durations)

    def _jumps(self, excess: float) -> bool:
        if not excess > 0 or not excess > JUMP_SHARE * self.step_seconds():
            return False
        centre = median(self._excesses)
        noise = NORMAL_CONSISTENCY * median(abs(past - centre) for past in self._excesses)
        return excess > JUMP_SIGMAS * noise


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """One special step: seconds of the slowest node and of the median node.

    Args:
        apart: the most that nodes differ by, as a share of the median, infinite on one node. If all
            took nearly the same time, it was rather an evaluation.
    """

    step: int
    node: int
    worst: float
    median: float
    apart: float


class CheckpointHistory:
    """Compares checkpoints with each other, across restarts; bounded memory."""

    __slots__ = ("_checkpoints", "_evaluations", "_leaders", "_levels", "_normal")

    def __init__(self) -> None:
        self._evaluations: deque[float] = deque(maxlen=REMEMBERED)
        self._levels: deque[float] = deque(maxlen=IN_A_ROW_ALONE)
        self._normal: deque[float] = deque(maxlen=REMEMBERED)
        self._checkpoints: deque[_Checkpoint] = deque(maxlen=IN_A_ROW_ALONE)
        self._leaders: deque[int] = deque(maxlen=LEADERS)

    def add(
        self, step: int, written: Floats, shape: Shape, step_seconds: float
    ) -> tuple[bool, Candidate | None]:
        """Add a special step; return whether it wrote a checkpoint, and the fault if any.

        Args:
            step: step counter.
            written: (P, D, T) residual of each rank beyond its ordinary one.
            shape: arrangement of the ranks.
            step_seconds: duration of ordinary steps.
        """
        checkpoint = _checkpoint_of(step, written, shape)
        if checkpoint is None or self._is_evaluation(checkpoint, shape.node_count):
            self._end_slow_series(checkpoint)
            return False, None
        self._checkpoints.append(checkpoint)
        self._levels.append(checkpoint.median)
        alone = checkpoint.worst > NODE_RATIO * checkpoint.median
        self._leaders.append(checkpoint.node if alone else -1)
        candidate = self._slow(shape, step_seconds)
        if not checkpoint.median > self._slow_level(shape.node_count):
            self._normal.append(checkpoint.median)
        return True, candidate

    def _is_evaluation(self, special: _Checkpoint, of_nodes: int) -> bool:
        """Return True if all nodes took equally long, or nearly so and as long as before."""
        known = of_nodes >= FEWEST_KNOWN and any(
            abs(special.median - before) < KNOWN_UNEVEN * before for before in self._evaluations
        )
        even = special.apart < (KNOWN_UNEVEN if known else UNEVEN)
        if even:
            self._evaluations.append(special.median)
        return even

    def _end_slow_series(self, even: _Checkpoint | None) -> None:
        """Let an even step that is as long as a normal checkpoint end a series of slow ones.

        If every other checkpoint coincides with an evaluation, those in between are short.
        """
        usual = median(self._normal) if self._normal else np.inf
        if even and usual / SAME < even.median < usual * SAME:
            self._levels.append(even.median)

    def _slow(self, shape: Shape, step_seconds: float) -> Candidate | None:
        needed = IN_A_ROW if shape.node_count > 1 else IN_A_ROW_ALONE
        last = list(self._checkpoints)[-needed:]
        if len(last) < needed:
            return None
        between = abs(last[-1].step - last[-2].step) * step_seconds
        if self._is_slow_writer(shape.node_count):
            ranks = tuple(int(rank) for rank in shape.positions_on(last[-1].node))
            observed, usual = last[-1].worst, last[-1].median
        else:
            slow = self._slow_level(shape.node_count)
            if not all(level > slow for level in list(self._levels)[-needed:]):
                return None
            ranks, observed, usual = (), last[-1].worst, median(self._normal)
        cost = (observed - usual) / (between + observed)
        if cost < MINIMUM_COST:
            return None
        return Candidate(
            "storage_checkpoint", cost, ranks, -1, observed, usual,
            lasted_seconds=needed * (between + observed),
        )  # fmt: skip

    def _slow_level(self, of_nodes: int) -> float:
        """Return the time of the median node beyond which a checkpoint is slow, at all nodes."""
        enough = len(self._normal) >= (FEWEST_ALONE if of_nodes == 1 else 1)
        return SLOWER * median(self._normal) if enough else np.inf

    def _is_slow_writer(self, of_nodes: int) -> bool:
        """Return True if one node has been slow alone in too many checkpoints for it to be chance.

        If others were so now and then before, nodes take unequally long in that job: each time
        requires one more checkpoint, and so does it if no checkpoint was of another kind. One of
        two nodes is the slowest in half of them, so that its own times count as well.
        """
        runs = [(node, len(list(several))) for node, several in groupby(self._leaders)]
        newest, count = runs[-1]
        own = IN_A_ROW if of_nodes == 2 else 0
        now_and_then = sum(
            node >= 0 and length < (own if node == newest else IN_A_ROW + 1)
            for node, length in runs[:-1]
        )
        always = all(node >= 0 for node, _ in runs)
        return newest >= 0 and count >= min(IN_A_ROW + now_and_then + always, ENOUGH_IN_A_ROW)


def _checkpoint_of(step: int, written: Floats, shape: Shape) -> _Checkpoint | None:
    """Return how long the nodes wrote, None if no node is known.

    One of several nodes alone does not show that they took unequally long. Neither does rank 0 if
    it has no other rank on its node and the other nodes evaluated: it saves after an evaluation.
    """
    flat, nodes = written.ravel(), shape.nodes.ravel()
    known = [
        node for node in np.unique(nodes[nodes >= 0]) if np.isfinite(flat[nodes == node]).any()
    ]
    if not known:
        return None
    times = np.array([np.nanmin(flat[nodes == node]) for node in known])
    middle = float(np.partition(times, (len(times) - 1) // 2)[(len(times) - 1) // 2])
    worst = int(np.argmax(times))
    compared = times
    if times[worst] > NODE_RATIO * middle and _is_rank_zero_alone(shape, int(known[worst])):
        compared = np.delete(times, worst)
    apart = float(np.ptp(compared)) / middle if shape.node_count > 1 and middle > 0 else np.inf
    return _Checkpoint(step, int(known[worst]), float(times[worst]), middle, apart)


def _is_rank_zero_alone(shape: Shape, node: int) -> bool:
    """Return True if a node has one rank, rank 0."""
    return shape.ranks_at(shape.positions_on(node).tolist()) == (0,)
