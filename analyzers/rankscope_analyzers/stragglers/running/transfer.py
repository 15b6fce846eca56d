"""How long the gradient exchange itself takes, with the waiting for late members taken out.

The last rank to arrive in a collective waits for nobody, so the smallest sync time in a
data-parallel group is the bare transfer time of that group.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.steps.frames import StepFrame

SIGNIFICANT_LAG = 5.0
"""Standard errors by which a rank must leave the collective after the others to be its slow end."""


def group_transfer(frame: StepFrame) -> tuple[Integers, Floats]:
    """Return the data-parallel groups (G,) and their transfer time (S, G) in seconds."""
    groups = np.unique(frame.groups)
    times = np.full((len(frame.sync), len(groups)), np.nan)
    for index, group in enumerate(groups.tolist()):
        sync = frame.sync[:, frame.groups == group]
        known = np.isfinite(sync).any(axis=1)
        times[known, index] = np.nanmin(sync[known], axis=1)
    return groups, times


def slow_end(frame: StepFrame, members: Integers) -> tuple[int, ...]:
    """Return the columns of `members`, latest to leave first, or nothing if none lags visibly.

    The ranks at the two ends of a slow hop leave the collective last, so what remains of their
    step after it (until the barrier that all leave together) is shortest.
    """
    rest = frame.step - frame.busy() - frame.sync
    rest = rest[:, members]
    mean = np.nanmean(rest, axis=0)
    lag = np.nanmax(mean) - mean
    error = np.nanstd(rest - np.nanmean(rest, axis=1, keepdims=True)) / np.sqrt(len(rest))
    order = np.argsort(-lag, kind="stable")
    if not error > 0 or lag[order[0]] - np.median(lag) <= SIGNIFICANT_LAG * error:
        return ()
    return tuple(int(members[index]) for index in order)
