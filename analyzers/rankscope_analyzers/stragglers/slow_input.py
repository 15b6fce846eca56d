"""Conclusions from input time: some ranks wait for data (data_loader), or all do (storage)."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import mean, spread, typical
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, View

MINIMUM_COST = 0.025
"""Share of the step: a prefetching loader costs less when it works."""

MINIMUM_SHARE = 0.6
"""Share of the newest `COST_STEPS` that must be slow: less is a prefetch queue that runs dry now
and then."""

MAXIMUM_RANKS = 0.5
"""When more ranks than this wait for input, what they share is slow."""

SIGNIFICANCE = 5.0
"""Standard errors: thousands of ranks are compared every few steps."""

COMPANY = 0.5
"""Ranks with at least this part of the worst excess are accused with it."""


def some(view: View) -> Candidate | None:
    """Return the ranks whose input is slow although that of most is not."""
    excess = mean(view.data)
    limit = MINIMUM_COST * view.step_seconds
    if not np.fmax.reduce(excess, axis=None) > limit:
        return None
    noise = typical(spread(view.data)) / np.sqrt(len(view.data))
    newest = view.data[-COST_STEPS:]
    slow = np.where(np.isfinite(newest), newest > limit / 2, 0.0)
    often = slow.mean(axis=0) > MINIMUM_SHARE
    flagged = (excess > max(limit, SIGNIFICANCE * noise)) & often
    if not flagged.any() or flagged.mean() > MAXIMUM_RANKS:
        return None
    worst = float(excess[flagged].max())
    ranks = _by_excess(excess, flagged & (excess >= COMPANY * worst))
    lost = np.fmax.reduce(view.data[-COST_STEPS:].reshape(-1, excess.size), axis=1)
    cost = float(mean(lost / view.duration[-COST_STEPS:]))
    usual = typical(view.data_median)
    return Candidate("data_loader", cost, ranks, -1, worst + usual, usual)


def everybody(view: View) -> Candidate | None:
    """Return that all ranks wait for input longer than at the start: shared storage is slow."""
    if view.baseline is None:
        return None
    rise = view.data_median - view.baseline.data
    limit = MINIMUM_COST * view.step_seconds
    if (
        float(rise.mean()) <= limit
        or float((rise[-COST_STEPS:] > limit / 2).mean()) <= MINIMUM_SHARE
    ):
        return None
    cost = float((rise / view.duration)[-COST_STEPS:].mean())
    observed = float(view.data_median.mean())
    return Candidate("storage_checkpoint", cost, (), -1, observed, view.baseline.data)


def _by_excess(excess: Floats, chosen: Floats) -> tuple[int, ...]:
    ranks = np.flatnonzero(chosen.ravel())
    return tuple(int(r) for r in ranks[np.argsort(-excess.ravel()[ranks], kind="stable")])
