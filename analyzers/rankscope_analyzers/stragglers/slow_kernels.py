"""Check: some ranks, or all ranks of a replica, compute longer than their peers."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.medians import mean, median, spread, typical
from rankscope_analyzers.stragglers import attribution, uneven_work
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, View

SILICON = 0.04
"""Healthy GPUs of one model differ by up to 4 %: a rank's own history may explain that much."""

RANK_EXCESS = 0.03
"""Beyond its own history a rank that is 3 % slower for a whole window is slow."""

REPLICA_EXCESS = 0.04
"""A replica's sequence lengths vary, so it takes more to call all of its ranks slow."""

RANK_SIGMAS = 5.0
"""Standard errors of a rank's mean: thousands of ranks are compared every few steps."""

REPLICA_SIGMAS = 6.0
"""As for ranks; sequence lengths have longer tails than kernel times."""

UP_SHARE = 0.3
"""Share of the steps that must be slow: throttling comes and goes."""

NEGLIGIBLE = 0.1
"""Ranks with a smaller fraction of it are not slow beside the worst: of three ranks, one that is
20 % slower than another does not excuse the one that takes ten times as long."""

MINIMUM_COST = 0.015
"""Share of the step below which it is not worth acting; the contract counts from 2 %."""

EXTREME = 4.0
"""Excess of a rank that takes five times as long as its peers: a single step beyond it is mostly
one in which these had next to nothing to compute."""

OUTLIER = 3.0
"""Such a step counts as at most so many times the excess that a quarter of the steps reach."""

REPLICA_CERTAINTY = 0.5
"""Only the replica is identified, not the rank in it."""

WINDOW_SIGMAS, LONG_SIGMAS = 5.0, 4.0
"""Standard errors by which the slowest of few replicas must exceed the next one, over a window or
over `LONG_STEPS`. Of two replicas with independent steps, whatever they vary by, one exceeds the
other by that much in two evaluations in a row in one of 150 jobs of 350 steps; the other
conditions must hold as well."""


def slow_ranks(view: View) -> Candidate | None:
    """Return the ranks whose own kernels are slow; under wall timing all look alike."""
    if view.shape.wall:
        return None
    own = _expected_ratio(view.baseline.relative if view.baseline else None, view.relative)
    if not np.fmax.reduce(mean(view.relative) / own - 1, axis=None) > RANK_EXCESS * ROUNDING_MARGIN:
        return None
    excess = view.relative / own - 1
    flagged, level = _slow(excess, RANK_EXCESS, RANK_SIGMAS)
    if not flagged.any() or _too_many(flagged, level):
        return None
    if view.flat and _may_be_chance(view, flagged[0, :, 0], level[0, :, 0]):
        return None
    changes = _changes(view.relative, view.baseline.relative if view.baseline else None)
    return _candidate(view, flagged, level, 1.0, changes)


def slow_replicas(view: View) -> Candidate | None:
    """Return the ranks of replicas that are slow as a whole."""
    if view.shape.replicas < 2:
        return None
    own = _expected_ratio(view.baseline.replica if view.baseline else None, view.replica)
    excess = view.replica / own - 1
    flagged, level = _slow(excess, REPLICA_EXCESS, REPLICA_SIGMAS)
    if not flagged.any() or _too_many(flagged, level):
        return None
    if _may_be_chance(view, flagged, level):
        return None
    sizes = view.shape.sizes
    wide = np.broadcast_to(flagged[None, :, None], sizes)
    levels = np.broadcast_to(level[None, :, None], sizes)
    fine = mean(view.relative) * 1e-6 if not view.shape.wall else 0.0
    certainty = 1.0 if view.flat else REPLICA_CERTAINTY
    changes = _changes(view.replica, view.baseline.replica if view.baseline else None)
    each = np.broadcast_to(changes[:, None, :, None], (len(changes), *sizes))
    return _candidate(view, wide, levels + np.nan_to_num(fine), certainty, each)


ROUNDING_MARGIN = 0.999
"""Margin for rounding in the quick test that rules out most windows."""


def _expected_ratio(history: Floats | None, like: Floats) -> Floats:
    """Return the ratio that a rank's history explains; without one, the largest possible."""
    if history is None:
        return np.full(like.shape[1:], 1 + SILICON)
    known = np.where(np.isfinite(history), history, 1.0)
    return np.asarray(np.clip(known, 1 - SILICON, 1 + SILICON))


def _changes(ratios: Floats, history: Floats | None) -> Floats:
    """Return (n, ...) ratios over a rank's own earlier ones, whatever these were."""
    if history is None:
        return ratios
    known = np.isfinite(history) & (history > 0)
    return np.asarray(ratios / np.where(known, history, 1.0))


def _slow(excess: Floats, minimum: float, sigmas: float) -> tuple[Booleans, Floats]:
    """Return who is slow, and then the mean excess of all, over the first axis.

    That it is extreme is all that counts of an extreme excess: between steps it varies by as much
    as what the peers have to compute, and this noise would hide a rank that is slow in all of them.
    """
    excess = _without_outliers(excess)
    bounded = np.minimum(excess, EXTREME)
    level = mean(bounded)
    if not np.fmax.reduce(level, axis=None) > minimum:
        return np.zeros(level.shape, dtype=np.bool_), level  # whatever the noise is
    noise = typical(spread(bounded))
    limit = max(minimum, sigmas * noise / float(np.sqrt(len(bounded))))
    up = np.where(np.isfinite(bounded), bounded > max(limit / 2, 1.5 * noise), 0.0).mean(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray((level > limit) & (up > UP_SHARE)), mean(excess)


def _too_many(flagged: Booleans, level: Floats) -> bool:
    """Return True if too many are slow for it to be the fault of each."""
    slow = flagged & (level >= NEGLIGIBLE * float(level[flagged].max()))
    return bool(slow.mean() > attribution.MAXIMUM_SHARE)


def _may_be_chance(view: View, flagged: Booleans, level: Floats) -> bool:
    """Return True if the slowest of few replicas may exceed the next healthy one by chance.

    The excess of that one is a measure of chance only if it is the largest of many. Ratios to one
    of few are ratios to a fast one, so that their own spread is no measure either. Differences of
    two replicas in the same steps are below zero as often as above, if neither is slow.

    Args:
        view: the newest steps.
        flagged: (D,) true for slow replicas.
        level: (D,) mean excess of each.
    """
    healthy = ~flagged & np.isfinite(level)
    if not view.shape.has_few_peers or not healthy.any():
        return False
    worst = int(np.argmax(np.where(flagged, level, -np.inf)))
    following = int(np.argmax(np.where(healthy, level, -np.inf)))
    known = ((view.replica, WINDOW_SIGMAS), (view.replica_long, LONG_SIGMAS))
    bounded = ((np.minimum(ratios - 1, EXTREME), sigmas) for ratios, sigmas in known)
    return not any(
        _is_certain(excess[:, worst] - excess[:, following], sigmas) for excess, sigmas in bounded
    )


def _is_certain(differences: Floats, sigmas: float) -> bool:
    """Return True if the mean of some differences exceeds zero by so many standard errors."""
    error = float(spread(differences)) / float(np.sqrt(len(differences)))
    return bool(float(mean(differences)) > sigmas * error)


def _without_outliers(excess: Floats) -> Floats:
    """Return the excesses with single extreme ones reduced: else one step is all of the noise."""
    if not np.fmax.reduce(excess, axis=None) > EXTREME:
        return excess
    known = np.where(np.isfinite(excess), excess, -np.inf)
    usual = np.sort(known, axis=0)[-max(1, len(known) // 4)]
    return np.asarray(np.minimum(excess, np.maximum(EXTREME, OUTLIER * usual)))


def _candidate(
    view: View, flagged: Booleans, level: Floats, certainty: float, changes: Floats
) -> Candidate | None:
    worst = float(level[flagged].max())
    accused = attribution.accused_of(level, flagged)
    stage = mean(view.stage)[:, None, None]
    if not attribution.is_conclusive(view, _seconds_beyond(mean(view.compute), level), accused):
        return None
    newest = view.compute[-COST_STEPS:]
    healthy = newest / (1 + np.maximum(_excess_over_healthy(view, newest, accused), 0.0))
    cost = view.saved_share(np.where(accused[None], healthy, newest))
    if cost < MINIMUM_COST:
        return None
    # Elsewhere a slow rank changes the ratios of the others in its replica.
    if view.flat and uneven_work.explains(view.shape, changes, accused):
        return _uneven(view, level, accused, cost)
    order = np.argsort(-np.where(accused, level, -np.inf).ravel(), kind="stable")
    named = tuple(int(rank) for rank in order[: int(accused.sum())])
    measured, where = mean(view.compute), np.unravel_index(named[0], view.shape.sizes)
    peers = typical(np.where(accused, np.nan, measured)[where[0]])
    usual = peers if peers > 0 else float(stage[where[0], 0, 0])
    slow = float(measured[where]) if np.isfinite(measured[where]) else (1 + worst) * usual
    candidate = Candidate("gpu_compute", cost, named, -1, slow, usual, certainty)
    if view.shape.wall:
        return candidate.with_extent(view.replica[:, where[1]] - 1)
    return candidate.with_extent(view.relative.reshape(len(view.relative), -1)[:, named[0]] - 1)


def _uneven(view: View, level: Floats, accused: Booleans, cost: float) -> Candidate:
    """Return the candidate that ranks compute longer because they have more work."""
    measured = mean(view.compute)
    longest = np.where(accused, measured, np.nan)
    others = typical(np.where(accused, np.nan, measured))
    candidate = Candidate(
        "partition_imbalance", cost, (), -1, float(np.fmax.reduce(longest, axis=None)), others,
        shown_by="ranks",
    )  # fmt: skip
    worst = int(np.argmax(np.where(accused, level, -np.inf)))
    relative = view.relative.reshape(len(view.relative), -1)
    return candidate.with_extent(relative[:, worst] - 1)


def _seconds_beyond(compute: Floats, level: Floats) -> Floats:
    """Return the part of each rank's compute that its relative excess makes up, seconds.

    A rank that computes nothing has an excess of -1.
    """
    return np.asarray(np.where(level > -1, compute * level / np.maximum(1 + level, TINY), -compute))


TINY = 1e-12


def _excess_over_healthy(view: View, newest: Floats, accused: Booleans) -> Floats:
    """Return (n, P, D, T) the relative excess of ranks over the healthy ones of their stage.

    Where a stage has none, over its median: half of a small stage may be accused, and lies in it.
    """
    healthy = median(np.where(accused, np.nan, newest), (2, 3))
    stage = view.stage[-len(newest) :][:, :, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):  # ranks that computed nothing
        by_stage = newest / np.where(np.isfinite(healthy), healthy, stage) - 1
    return np.asarray(np.where(np.isfinite(by_stage), by_stage, 0.0))
