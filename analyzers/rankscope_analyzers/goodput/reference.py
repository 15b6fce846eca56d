"""The duration of an undisturbed step of a job, measured from its own steps. Pure; bounded state.

Steps are taken in blocks. A rank that is slowest throughout a block is removed from it, so that a
job that never ran without a slow rank has a reference too; and the fast blocks count, so that a
fault may last for most of the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rankscope_analyzers.goodput.executed import Executed
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY

BLOCK_STEPS = 8
"""Steps of a block: their median ignores three odd ones."""

BLOCKS_KEPT = 128
"""The newest blocks that are remembered; a thousand steps."""

BLOCKS_STORED = 16
"""Blocks that are saved for the next watch: a ConfigMap has 900 bytes for each of a thousand
jobs."""

ENOUGH_BLOCKS = 5
"""Blocks from which on a fast one among them is not chance."""

FAST_SHARE = 0.2
"""Quantile of the blocks' durations that is taken as undisturbed: up to four fifths may be
disturbed. The very fastest blocks would be those whose steps did less, such as without an
update."""

CLEAR_LAG = 0.1
"""Fraction of a step by which a rank that is slowest throughout a block exceeds its peers: less is
chance or how the work is split."""

THROUGHOUT = 0.75
"""Fraction of a block's steps in which one rank is the slowest, if it is slow."""

LEAST_NOISE, MOST_NOISE = 0.05, 0.25
"""Fraction of a step by which undisturbed steps may differ: their own spread, within these
bounds."""

NOISE_SIGMAS = 3.0
"""Standard deviations of their spread by which undisturbed steps may differ."""


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of one step in seconds; parts are NaN if not measured.

    Args:
        step: all of it, without checkpoints and evaluations.
        data: as in `Executed`, like own and sync.
        spread: median absolute deviation of steps from this one.
    """

    step: float
    data: float
    own: float
    sync: float
    spread: float = 0.0

    @property
    def noise(self) -> float:
        """Return seconds by which an undisturbed step may exceed it."""
        usual = NOISE_SIGMAS * NORMAL_CONSISTENCY * self.spread
        return min(max(usual, LEAST_NOISE * self.step), MOST_NOISE * self.step)


@dataclass(slots=True)
class Reference:
    """The blocks of a job's steps.

    Args:
        blocks: the newest ones.
        rest: steps that do not fill a block yet, as `_row` returns them.
    """

    blocks: list[Times] = field(default_factory=list)
    rest: list[list[float]] = field(default_factory=list)

    def add(self, steps: Executed) -> None:
        """Add steps, all of one run, in order; first ones of processes do not count."""
        taken = steps.end - steps.start - steps.checkpoint - steps.evaluation
        for index in np.flatnonzero(~steps.first & (taken > 0)).tolist():
            self.rest.append(_row(steps, index, float(taken[index])))
            if len(self.rest) == BLOCK_STEPS:
                self.blocks.append(_block(np.array(self.rest)))
                self.rest = []
        del self.blocks[:-BLOCKS_KEPT]

    @property
    def enough(self) -> bool:
        """Return True if there are enough steps for a judgement."""
        return len(self.blocks) >= ENOUGH_BLOCKS

    def usual(self) -> Times | None:
        """Return the duration of an undisturbed step, None without any step."""
        blocks = self.blocks or ([_block(np.array(self.rest))] if self.rest else [])
        if not blocks:
            return None
        fast = float(np.quantile([one.step for one in blocks], FAST_SHARE, method="lower"))
        first = Times(fast, 0.0, 0.0, 0.0, _median([one.spread for one in blocks]))
        return _middle([one for one in blocks if one.step <= fast + first.noise])

    def kept(self) -> Any:
        """Return JSON-ready values."""
        newest = self.blocks[-BLOCKS_STORED:]
        return {"blocks": [[_digits(value) for value in asdict(one).values()] for one in newest]}

    @classmethod
    def of(cls, kept: Any) -> Reference:
        """Return a reference from its saved form.

        Raises:
            TypeError, ValueError, KeyError: it is not one.
        """
        return cls([Times(*map(_number, row)) for row in kept["blocks"]])


def _number(kept: Any) -> float:
    return math.nan if kept is None else float(kept)


def _digits(value: float) -> float | None:
    """Return a number in few JSON bytes; a reference is no more exact."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _row(steps: Executed, index: int, taken: float) -> list[float]:
    parts = (steps.data, steps.usual_data, steps.own, steps.usual_own, steps.sync)
    return [taken, *(float(one[index]) for one in (*parts, steps.lag, steps.slowest))]


def _block(rows: np.ndarray[Any, np.dtype[np.float64]]) -> Times:
    """Return the medians of a block, without the time that one rank takes longer than its peers."""
    taken, data, usual_data, own, usual_own, sync, lag = (_median(rows[:, at]) for at in range(7))
    spread = float(np.median(np.abs(rows[:, 0] - taken)))
    often = max(Counter(rows[:, 7].tolist()).values()) / len(rows)
    if often >= THROUGHOUT and lag > CLEAR_LAG * taken:
        taken, data, own = taken - lag, usual_data, usual_own
    return Times(max(taken, 0.0), data, own, sync, spread)


def _middle(blocks: Sequence[Times]) -> Times | None:
    values = [asdict(one).values() for one in blocks if one.step > 0]
    return Times(*map(_median, zip(*values, strict=True))) if values else None


def _median(values: Any) -> float:
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if len(known) else float("nan")
