"""Whether ranks end their steps together, at a barrier: then a shorter rest is a later exit.

Without a barrier each rank goes on as soon as its own rest is over. One with less to do there, such
as a smaller share of the optimizer's states, then has a shorter rest although it left the exchange
with the others.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.medians import mean, median, zero_if_missing
from rankscope_analyzers.stragglers.step_averaging import BIN_SECONDS
from rankscope_analyzers.stragglers.view import View

TOGETHER = 0.5
"""Ends of steps vary by less than this fraction of what exits vary by if a barrier lies in between;
without one they vary by what exits and rests vary by, which is more."""


def are_together(view: View) -> bool:
    """Return True if ranks wait for each other after the rest of their step.

    Ends by the clock, within nodes, or durations of consecutive steps show it. Either is enough:
    starts by the clock may vary by more than what the ends have in common.
    """
    return _by_clock(view) or _by_duration(view)


def _by_clock(view: View) -> bool:
    """Return True if clocks of nodes show it, False if no node has two ranks whose clock is known.

    If all ranks of a node end together, its rest makes up for what a rank's exit is late by.
    """
    exits, rest = view.exit_lateness_long, view.residual_long
    if exits is None or not np.isfinite(exits).any():
        return False
    rest = np.where(np.isfinite(exits), rest, np.nan)
    both = _within_nodes(np.concatenate([exits, rest]), view.shape.nodes)
    exits, rest = both[: len(exits)], both[len(exits) :]
    if not view.flat:  # stages leave at different times, so that only changes tell
        exits, rest = exits - median(exits, 0), rest - median(rest, 0)
    return bool(_level(exits + rest) <= TOGETHER * _level(exits))


def _within_nodes(values: Floats, nodes: Integers) -> Floats:
    """Return (n, P, D, T) values relative to the mean of their node, unknown without a node."""
    flat, numbers = values.reshape(len(values), -1), nodes.ravel()
    order = np.argsort(numbers, kind="stable")
    _, first, index = np.unique(numbers[order], return_index=True, return_inverse=True)
    known = np.isfinite(flat[:, order])
    total = np.add.reduceat(np.where(known, flat[:, order], 0.0), first, axis=1)
    count = np.add.reduceat(known.astype(np.int64), first, axis=1)
    result = np.full_like(flat, np.nan)
    result[:, order] = flat[:, order] - (total / np.maximum(count, 1))[:, index]
    result[:, numbers < 0] = np.nan
    return result.reshape(values.shape)


def _level(late: Floats) -> float:
    """Return by how much ranks differ in most steps, on average."""
    return float(zero_if_missing(mean(median(np.abs(late), 0).ravel())))


def _by_duration(view: View) -> bool:
    """Return the answer of durations: at a barrier they are equal, whatever the exits were.

    Without one, a step is longer than those of other ranks by what its rest is longer than that of
    the step before. Means over several steps do not show this.
    """
    if view.means or view.step_seconds < BIN_SECONDS or len(view.residual) < 2:
        return False
    spent = view.compute + view.input + view.sync + view.residual
    if view.cpu_wait is not None:
        spent = spent + zero_if_missing(view.cpu_wait)
    longer = (spent - median(spent, 2))[1:]
    exits = longer - np.diff(view.residual, axis=0)
    return bool(np.isfinite(longer).any()) and _level(longer) <= TOGETHER * _level(exits)
