"""Conclusions from input time: some ranks wait for data (data_loader), or all do (storage).

In many jobs one rank loads for all, and the others wait for its broadcast: it is compared with
itself, as nobody else loads.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.binomial import some_hit_so_often
from rankscope_analyzers.numeric.medians import lower, mean, spread, typical
from rankscope_analyzers.stragglers import attribution, slow_loaders
from rankscope_analyzers.stragglers.slow_loaders import FAST_SHARE, MINIMUM_COST
from rankscope_analyzers.stragglers.view import COST_STEPS, Baseline, Candidate, View

MINIMUM_SHARE = 0.6
"""Share of the newest `COST_STEPS` that must be slow: fewer are a prefetch queue that runs dry
occasionally."""

MAXIMUM_RANKS = 0.5
"""If more ranks than this wait for input, something that they share is slow."""

MINIMUM_PERIODIC_WAITS = 4
"""Or this many waits in the newest `LONG_STEPS` steps: slow loader workers finish their batches
together, so that the wait for as many steps as there are workers (usually eight) falls on one step.
A queue that runs dry in one of twenty steps causes two."""

CHANCE = 0.001
"""Maximum probability that waits on any rank hit one so often, and so evenly, by chance."""

EVEN_ROWS = 3
"""Places of a wait that count as one distance after the one before: exact, or one row off."""

SIGNIFICANCE = 5.0
"""Standard errors: thousands of ranks are compared every few steps."""


def slow_ranks(view: View) -> Candidate | None:
    """Return the ranks whose input is slow although most ranks' is not."""
    excess = mean(view.data)
    limit = MINIMUM_COST * view.step_seconds
    if not np.fmax.reduce(excess, axis=None) > limit:
        return None
    noise = max(typical(spread(view.data)), _difference_at_start(view)) / np.sqrt(len(view.data))
    newest = view.data[-COST_STEPS:]
    slow = np.where(np.isfinite(newest), newest > limit / 2, 0.0)
    is_frequent = (slow.mean(axis=0) > MINIMUM_SHARE) | _waits_periodically(view, limit)
    flagged = (excess > max(limit, SIGNIFICANCE * noise)) & is_frequent
    if not flagged.any() or flagged.mean() > MAXIMUM_RANKS:
        return None
    worst = float(excess[flagged].max())
    accused = attribution.accused_of(excess, flagged)
    if not attribution.is_conclusive(view, excess, accused):
        return None
    if slow_loaders.are_alike(view, accused):
        return None
    if _others_increase(view, accused) > max(limit, SHARED * worst):
        return None
    ranks = _by_excess(excess, accused)
    waits = view.data[-COST_STEPS:].reshape(-1, excess.size)
    of_others = np.fmax.reduce(waits[:, ~accused.ravel()], axis=1)
    lost = np.fmax(np.fmax.reduce(waits, axis=1) - np.fmax(of_others, 0.0), 0.0)
    cost = float(np.nansum(lost) / view.duration[-COST_STEPS:].sum())
    usual = typical(view.data_median)
    candidate = Candidate("data_loader", cost, ranks, -1, worst + usual, usual)
    return candidate.with_extent(view.data.reshape(len(view.data), -1)[:, ranks[0]])


def _difference_at_start(view: View) -> float:
    """Return the standard deviation of the difference of two ranks' waits at the start, seconds."""
    if view.baseline is None:
        return 0.0
    return float(np.sqrt(2) * view.baseline.waits_noise * view.more_work)


def _waits_periodically(view: View, limit: float) -> Booleans:
    """Return which ranks wait every few steps for what their loader needs in all of them.

    Not those that do so by chance, among queues that run dry now and then on any rank.
    """
    ranks = view.data_long.reshape(len(view.data_long), -1)
    with np.errstate(invalid="ignore"):
        waits = ranks > limit
    struck = waits[waits.any(axis=1)]
    counts = waits.sum(axis=0)
    found = np.zeros(counts.shape, dtype=np.bool_)
    known = np.count_nonzero(np.isfinite(ranks).any(axis=0))
    for rank in np.flatnonzero(counts >= MINIMUM_PERIODIC_WAITS):
        share = struck.sum() / (len(struck) * known)
        chance = some_hit_so_often(len(struck), int(counts[rank]), share) if share < 1 else 1.0
        found[rank] = chance * _evenly_by_chance(np.flatnonzero(waits[:, rank])) <= CHANCE
    return found.reshape(view.data_long.shape[1:])


def _evenly_by_chance(rows: Integers) -> float:
    """Return the probability that waits are as evenly spaced by chance, at most; 1 if they are not.

    The first two of them give the distance; rows that are left out shift the others by one.
    """
    apart = np.diff(rows)
    if np.ptp(apart) > 1:
        return 1.0
    return float(min(1.0, EVEN_ROWS / apart.mean()) ** (len(apart) - 1))


def _others_increase(view: View, accused: Booleans) -> float:
    """Return how much longer the ranks that are not accused wait for input than at the start.

    While one rank's input is slow, the queues of the others fill: they wait less, not more.
    """
    if view.baseline is None:
        return 0.0
    others = mean(view.input)[~accused]
    before = max(view.baseline.data, view.baseline.waits) * view.more_work
    return float(np.median(others[np.isfinite(others)])) - before


SHARED = 0.2
"""Fraction of a rank's excess from which on an increase of the others shows that something shared
is slow."""


def slow_for_all(view: View) -> Candidate | None:
    """Return the candidate that all ranks wait for input longer than at the start: slow storage.

    More samples than at the start take as much longer to load.
    """
    rise = _increase(view)
    if view.baseline is None or rise is None or _only_loader(view) is not None:
        return None
    before = _usual(view.baseline) * view.more_work
    cost = _share_lost_by_all(view, rise, view.baseline)
    observed = before + float(mean(rise))
    candidate = Candidate("storage_checkpoint", cost, (), -1, observed, before, shown_by="input")
    return candidate.with_extent(rise)


def slow_only_loader(view: View) -> Candidate | None:
    """Return the only rank that loads, if all others wait for its input.

    Either longer than at the start, or for so much of each step that the start does not matter.
    """
    position = _only_loader(view)
    if position is None:
        return None
    before = 0.0
    rise = _increase(view)
    if view.baseline is not None and rise is not None:
        before = _usual(view.baseline) * view.more_work
    else:
        rise = view.data_median
        if not float(mean(rise)) > LARGE_SHARE * view.step_seconds:
            return None
    loads = np.isfinite(mean(view.input))
    excess = np.where(loads, float(mean(rise)), np.nan)
    if not attribution.is_conclusive(view, excess, loads):
        return None
    cost = float(mean(rise[-COST_STEPS:])) / float(mean(view.duration[-COST_STEPS:]))
    observed = before + float(mean(rise))
    candidate = Candidate(
        "data_loader", cost, (position,), -1, observed, before, shown_by="only_loader"
    )
    return candidate.with_extent(rise)


LARGE_SHARE = 0.2
"""Share of the step for which all others wait for the input of the only rank that loads: from then
on it is reported even if it was as slow at the start. Without workers that load ahead, a few
hundredths are usual."""


def _only_loader(view: View) -> int | None:
    """Return the position of the rank that loads for all, None unless there is exactly one."""
    loads = np.flatnonzero(np.isfinite(view.input[-COST_STEPS:]).any(axis=0))
    timed = np.isfinite(view.compute).any(axis=0)
    return int(loads[0]) if len(loads) == 1 and np.count_nonzero(timed) > 1 else None


def _usual(baseline: Baseline) -> float:
    """Return the input time of the start, seconds."""
    return max(baseline.data, baseline.data_mean)


def _increase(view: View) -> Floats | None:
    """Return (n,) how much longer ranks wait for input than at the start, None if they do not."""
    if view.baseline is None:
        return None
    usual, more = view.baseline, view.more_work
    rise = view.data_median - _usual(usual) * more
    limit = MINIMUM_COST * view.step_seconds
    least = max(limit, attribution.MINIMUM_SECONDS)
    together = float((rise[-COST_STEPS:] > limit / 2).mean()) > MINIMUM_SHARE
    chance = SIGNIFICANCE * usual.data_noise * more / np.sqrt(len(rise))
    if together and float(mean(rise)) > max(least, chance):
        return rise
    rise = _alternating_increase(view)
    chance = SIGNIFICANCE * usual.waits_noise * more / np.sqrt(len(rise) / 2)
    return rise if float(rise.min()) > max(least, chance) else None


def _share_lost_by_all(view: View, rise: Floats, baseline: Baseline) -> float:
    """Return the share of the newest steps that all ranks' longer waits for input cost.

    A step waits for the last rank, which may wait for much longer than the median one: the cost is
    what steps take longer than at the start, at least the median rank's part of it, and at most the
    last one's.
    """
    lasted = float(mean(view.duration[-COST_STEPS:]))
    of_last = np.fmax.reduce(view.input[-COST_STEPS:], axis=(1, 2, 3))
    most = float(mean(of_last)) - baseline.data * view.more_work
    least = float(mean(rise[-COST_STEPS:]))
    return max(min(lasted - baseline.duration * view.more_work, most), least) / lasted


def _alternating_increase(view: View) -> Floats:
    """Return (n,) how much longer nearly all ranks wait, each of them in different steps.

    Slow workers deliver their batches together, so that each rank waits only in some steps and the
    median rank of a step in none: the wait of a rank is therefore averaged over half a window.
    """
    usual = view.baseline
    before = max(usual.data, usual.waits) * view.more_work if usual else 0.0
    half = len(view.input) // 2
    increase = np.empty(len(view.input))
    for part in (slice(half), slice(half, None)):
        increase[part] = float(lower(mean(view.input[part]), (0, 1, 2), FAST_SHARE).ravel()[0])
    return increase - before


def _by_excess(excess: Floats, chosen: Booleans) -> tuple[int, ...]:
    ranks = np.flatnonzero(chosen.ravel())
    return tuple(int(r) for r in ranks[np.argsort(-excess.ravel()[ranks], kind="stable")])
