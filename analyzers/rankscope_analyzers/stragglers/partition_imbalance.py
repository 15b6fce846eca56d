"""Checks of how the work is split: a heavy stage, or replicas with unequal sequences."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import mean, median, spread, typical
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.stragglers.pipeline import gradients_ready
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, View

HEAVY = 1.08
"""Excess of a stage over all others: partitioning by whole layers leaves a few per cent."""

ODD = 4.0
"""Larger differences between stages are not a partition but a schedule that the model does not
know."""

RISEN = 1.06
"""A stage that grew this much relative to the others since the start has been given more work."""

MINIMUM_COST = 0.015
"""Share of the step below which moving a layer does not pay."""

UNEQUAL = 0.07
"""Standard deviation of replicas within a step: packed sequences stay below 4 %."""

GROWN = 2.0
"""Or this factor above the start of the run, from `NOTICEABLE` on."""

NOTICEABLE = 0.045
"""Spread between replicas below which the batching is not worth changing."""

FEWEST_STEPS = 4
"""Steps that show whether the slowest replica changes, or what stages need compared with each
other: while the node of a stage is silent, the others are not compared with its earlier need."""

FEWEST_REPLICAS = 3
"""With two replicas one of them is always the slow one."""

FEWEST_IF_WALL = 4
"""Under wall timing a stall of one replica must not pass for a spread of all of them."""


def imbalance(view: View) -> Candidate | None:
    """Return the imbalance of work: between replicas, or between stages if that costs far more."""
    between, heavy = uneven_sequences(view), heavy_stage(view)
    if between and heavy and heavy.cost < STAGE_OVER_SEQUENCES * between.cost:
        return between
    return heavy or between


STAGE_OVER_SEQUENCES = 3.0
"""Unequal sequences make stages look uneven, and two uneven stages are cheap to rebalance later."""


def heavy_stage(view: View) -> Candidate | None:
    """Return the pipeline stage that is heavier than the others."""
    if view.shape.pipeline < 2:
        return None
    weights = typical_paces(view)
    if weights is None:
        return None
    heavy = int(np.argmax(weights))
    if view.stages_are_ranks and _has_grown(view, weights, heavy):
        return None  # without peers, it is its rank that has become slower
    others = np.delete(weights, heavy)
    usual = typical(others)
    above = weights[heavy] > HEAVY * others.max()
    if (not above and not _has_grown(view, weights, heavy)) or weights.min() < weights.max() / ODD:
        return None
    ideal = np.minimum(weights, float(others.max()))
    ideal[heavy] = min(usual, weights[heavy])
    lasted = float(mean(view.duration[-COST_STEPS:]))
    cost = (finish_time(view, weights) - finish_time(view, ideal)) / lasted
    if cost < MINIMUM_COST:
        return None
    each = tuple(weights.tolist())
    observed = float(weights[heavy])
    return Candidate("partition_imbalance", cost, (), heavy, observed, usual, stages=each)


def typical_paces(view: View) -> Floats | None:
    """Return the compute of each stage, None if too few steps show all of them."""
    recent = view.paces[-WEIGHT_STEPS:]
    recent = recent[np.isfinite(recent).all(axis=1)]
    if len(recent) < FEWEST_STEPS:
        return None
    return np.asarray(median(recent, 0)[0])


WEIGHT_STEPS = 12
"""Steps of which stages are the median: stalls of a whole stage are not its weight."""


def _has_grown(view: View, weights: Floats, heavy: int) -> bool:
    growth = growth_of_stages(view, weights)
    grown = growth is not None and outgrows_others(growth, heavy)
    return grown and bool(weights[heavy] > weights.max() / HEAVY)


def growth_of_stages(view: View, weights: Floats) -> Floats | None:
    """Return (P,) the compute of each stage over that at the start, None if that is unknown."""
    if view.baseline is None:
        return None
    return np.asarray(weights / np.maximum(view.baseline.paces, weights.max() / ODD))


def outgrows_others(growth: Floats, stage: int) -> bool:
    """Return True if a stage grew since the start, and the others by less than half of that."""
    rise = float(growth[stage]) - 1
    return rise > RISEN - 1 and typical(np.delete(growth, stage)) < 1 + rise / 2


def finish_time(view: View, weights: Floats) -> float:
    """Return when the last stage of a pipeline is done, in seconds.

    Args:
        view: the newest steps.
        weights: (P,) seconds that each stage computes.
    """
    busy = weights[:, None]
    ready = gradients_ready(np.zeros_like(busy), busy, view.shape.microbatches)
    return float(ready.max())


def uneven_sequences(view: View) -> Candidate | None:
    """Return the candidate that replicas get unequal work which moves from one to another."""
    ratios = view.replica_long
    count = view.shape.replicas
    if view.crowded:
        return None  # batches dealt in turn change the slowest: only counts decide
    fewest = FEWEST_IF_WALL if view.shape.wall else FEWEST_REPLICAS
    if count < fewest or len(view.replica) < FEWEST_STEPS:
        return None
    apart = spread_within_steps(view.replica, view.shape.wall)
    before = view.baseline.replica_spread if view.baseline else 0.0
    grown = before > 0 and apart > max(GROWN * before, NOTICEABLE)
    if not (apart > UNEQUAL or grown):
        return None
    uneven = _uneven_steps(ratios)
    usual = view.baseline.replica if view.baseline else None
    if not _leader_changes(uneven, count) or _have_become_slow(uneven, usual):
        return None
    newest = view.replica[-COST_STEPS:]
    lead = np.fmax.reduce(newest, axis=1) - mean(newest, axis=1)
    work = np.fmax.reduce(view.stage[-COST_STEPS:], axis=1)
    lost = float(mean(lead * work / view.duration[-COST_STEPS:]))
    ordinary = before if before < UNEQUAL else 0.0
    cost = lost * max(0.0, 1 - ordinary / apart)
    return Candidate("partition_imbalance", cost, (), -1, apart, before or NOTICEABLE)


def spread_within_steps(ratios: Floats, wall: bool) -> float:
    """Return the mean standard deviation of replicas within a step.

    Estimated from absolute deviations: their median if compute includes stalls, because one stalled
    replica does not move it, and their mean, which is less noisy, otherwise.
    """
    if wall:
        return float(NORMAL_CONSISTENCY * mean(median(np.abs(ratios - median(ratios, 1)), 1)[:, 0]))
    centre = mean(ratios, axis=1)[:, None]
    return float(1.25 * mean(mean(np.abs(ratios - centre), axis=1)))


def _leader_changes(ratios: Floats, count: int) -> bool:
    """Return True if the slowest replica changes from step to step.

    In n steps each of D replicas leads n/D times by chance; 2.2 times that, or six standard
    deviations of such a count, is still no single culprit: batches are not dealt evenly.
    """
    leaders = np.argmax(np.nan_to_num(ratios), axis=1)
    most = np.bincount(leaders).max() / len(leaders)
    chance = 1 / count
    allowed = max(2.2 * chance, chance + 6 * np.sqrt(chance * (1 - chance) / len(leaders)))
    return bool(most <= min(allowed, MOST_LED))


def _uneven_steps(ratios: Floats) -> Floats:
    """Return the steps in which replicas differ.

    Between the episodes of a replica that is slow at times, any of them leads.
    """
    lead = np.nan_to_num(np.fmax.reduce(ratios, axis=1) - mean(ratios, axis=1))
    level = float(np.sort(lead)[-max(1, len(lead) // 4) :].mean())
    return np.asarray(ratios[lead >= HARDLY * level])


def _have_become_slow(ratios: Floats, usual: Floats | None) -> bool:
    """Return True if replicas have become slow to stay so: of several, another one leads each time.

    Args:
        ratios: (n, D) compute of each replica over the others'.
        usual: (D,) the same at the start, None if that is unknown.
    """
    if usual is None:
        return False
    lasting, between = spread(mean(ratios) - usual), spread(ratios.T)
    return bool(lasting**2 > MOST_LASTING * mean(between**2))


MOST_LED = 0.7
"""A replica that leads in more steps than this is the culprit, however few replicas there are."""

HARDLY = 0.25
"""Share of the lead in the most uneven steps below which replicas hardly differ in a step."""

MOST_LASTING = 0.5
"""Share of the variance between replicas: work that moves leaves one in as many as there are
steps."""
