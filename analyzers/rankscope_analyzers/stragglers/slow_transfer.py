"""Checks of the gradient exchange: one link is slow (network_link), or the whole fabric."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.medians import FEW, lower, mean, median, typical, zero_if_missing
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.stragglers import attribution, step_ends
from rankscope_analyzers.stragglers.pipeline import gradients_ready
from rankscope_analyzers.stragglers.view import (
    COST_STEPS,
    LONG_STEPS,
    WINDOW_STEPS,
    Candidate,
    View,
)

MINIMUM_RISE = 0.02
"""Share of the step: less is not worth reporting."""

RELATIVE_RISE = 0.20
"""Congestion moves the transfer time by less than this from minute to minute."""

SIGMAS = 5.0
"""Standard errors of the mean of a window."""

STEADY_STEPS = 10
"""Newest steps whose median must be raised as well: stalls of hosts raise the mean."""

RISE_FROM_START = 0.5
"""Share by which a group must exceed the median group if there is no baseline."""

FEW_GROUPS = 0.6
"""If a larger share of the groups is slow, the fabric is, unless some rank clearly lags."""

UNCLEAR_SIGMAS = 4.7
"""From here on a lag may be real and more steps will show: the largest of a hundred ranks' noise,
measured from the earliest fifth, stays below."""

DECIDED_STEPS = 32
"""Steps after which a lag that is still unclear is none."""

FEWEST_LAGS = 8
"""Steps that a lag is averaged over at least."""

SMALL_GROUP, SMALL_GROUP_SIGMAS = 8, 2.0
"""The earliest of so few ranks is an extreme of the noise: lag relative to it needs this much
more."""

LAG_SIGMAS = 6.0
"""Standard errors by which a rank must leave its collective after the others to be named without
the evidence of a small number of slow groups."""

LAG_SHARE = 0.04
"""The ends of a slow hop leave the collective later by a few per cent of the excess."""

LEAST_LAG_SHARE = 0.01
"""A lag below this share of the excess, however certain, has another origin, such as a host."""

PAIR = 2
"""Both members of a group of two are ends of its only hop: they leave together, and a lag between
them means nothing."""

MINIMUM_COST = 0.015
"""Share of the step; the contract counts from 2 %."""

LAG_FROM_START = 12.0
"""Standard errors of lag that are conclusive without any rise: a link slow from the start."""


def slow_exchange(view: View) -> Candidate | None:
    """Return the candidate that a link, or the fabric, slows the gradient exchange."""
    if view.stages_are_ranks:
        return None  # they exchange no gradients, and wait for messages of the slowest stage
    level = mean(view.transfer)
    before, limit = _expected(view, level)
    slow = np.asarray(level - before > limit)
    if slow.any():
        steady = median(view.transfer[-STEADY_STEPS:], 0)[0]
        slow = np.asarray(np.fmin(level, steady) - before > limit)
    if not slow.any():
        return _slow_from_start(view)
    cost = _cost(view, before)
    if cost < MINIMUM_COST:
        return None
    worst = float(np.nanmax(np.where(slow, level, np.nan)))
    usual = float(np.nanmax(np.where(slow, before, np.nan)))
    members = np.broadcast_to(slow[:, None, :], view.shape.sizes)
    since = _steps_since(view, before + limit / 2)
    lag, score = _lag(_lateness(view)[-since:])
    if not np.isfinite(lag[members]).any():
        return None  # all ranks of these groups are silent by now
    rise = mean(view.transfer_long[-since:]) - before
    fits = bool((lag > LEAST_LAG_SHARE * rise[:, None, :])[members].any())
    doubt = _strongest_score(view, np.where(members, score, np.nan))
    few = view.shape.replicas <= SMALL_GROUP
    lagging = fits and doubt > LAG_SIGMAS + few * SMALL_GROUP_SIGMAS
    if slow.mean() > FEW_GROUPS and not lagging:
        if view.baseline is None or (doubt > UNCLEAR_SIGMAS and since < DECIDED_STEPS):
            return None
        candidate = Candidate("global_slowdown", cost, (), -1, worst, usual, shown_by="exchange")
        return candidate.with_extent(_longest(view, slow, before))
    ranks = _hop_ends(view, np.where(members, lag, -np.inf), bool(slow.sum() > 1))
    candidate = Candidate("network_link", cost, ranks, -1, worst, usual, 1.0 if lagging else 0.5)
    return candidate.with_extent(_longest(view, slow, before))


def _longest(view: View, slow: Booleans, before: Floats) -> Floats:
    """Return (n,) the largest excess of the slow groups in each step, seconds."""
    late = np.where(slow, view.transfer - before, np.nan)
    return np.asarray(np.fmax.reduce(late.reshape(len(late), -1), axis=1))


def _expected(view: View, level: Floats) -> tuple[Floats, Floats]:
    """Return each group's normal transfer time and the rise that makes it slow."""
    least = max(MINIMUM_RISE * view.step_seconds, attribution.MINIMUM_SECONDS)
    if view.baseline is None:
        usual = np.full_like(level, typical(level))
        start_limit = np.maximum(least, RISE_FROM_START * usual)
        return usual, start_limit if level.size > 2 else np.full_like(level, np.inf)
    before = view.baseline.transfer
    error = SIGMAS * view.baseline.transfer_noise / np.sqrt(len(view.transfer))
    return before, np.maximum(np.maximum(least, error), RELATIVE_RISE * before)


def _steps_since(view: View, limit: Floats) -> int:
    """Return for how many of the newest steps some group has been slow continuously."""
    slow = np.asarray((view.transfer_long > limit).any(axis=(1, 2)))[::-1]
    return max(FEWEST_LAGS, int(np.argmin(slow)) if not slow.all() else len(slow))


def _strongest_score(view: View, score: Floats) -> float:
    """Return the largest score of a rank, or of a node, whose ranks err independently.

    Lag is measured from the earliest ranks, so that all have some: nodes are compared without it.
    """
    flat, nodes = score.ravel(), view.shape.nodes.ravel()
    known = np.isfinite(flat) & (nodes >= 0)
    if not known.any():
        return 0.0
    count = np.maximum(np.bincount(nodes[known]), 1)
    surplus = flat[known] - np.median(flat[known])
    sums = np.bincount(nodes[known], weights=surplus) / np.sqrt(count)
    return float(max(flat[known].max(), sums.max()))


def _lag(values: Floats) -> tuple[Floats, Floats]:
    """Return how much later than its group each rank leaves, and that in standard errors.

    Args:
        values: (n, P, D, T) how late ranks leave, each counted from a separate zero.
    """
    replicas = values.shape[2]
    if replicas <= FEW:  # beyond the median of so few, one of them is always 0
        values = values - mean(values, 2)[:, :, None]
    level = median(values, 0)[0]
    noise = typical(np.abs(values - level)) * NORMAL_CONSISTENCY
    error = 1.25 * noise / np.sqrt(len(values))
    lag = level - lower(level, (1,), EARLY_SHARE)
    if replicas <= PAIR:
        return np.asarray(lag), np.zeros_like(lag)
    return np.asarray(lag), np.asarray(lag / max(error, RESOLUTION_SECONDS))


def _lateness(view: View) -> Floats:
    """Return (n, P, D, T) how late ranks leave: as a shorter rest before a barrier, or by clock.

    Ranks of one node share a clock; clocks of several nodes are compared with their earlier offset.
    """
    late = _shorter_rest(view, step_ends.are_together(view))
    before = view.baseline.exit_lateness if view.baseline else None
    if view.exit_lateness_long is None or (before is None and view.shape.node_count > 1):
        return late
    usual = 0.0 if before is None or view.shape.node_count == 1 else np.nan_to_num(before)
    return late + zero_if_missing(view.exit_lateness_long - usual)


def _lateness_from_start(view: View, together: bool) -> Floats:
    """Return the same minus what was usual at the start, which contains what was slow by then.

    When such a link recovers, all members of its group but its ends leave later than at the start.

    Args:
        view: the newest steps.
        together: True if ranks wait for each other after the rest of their step.
    """
    late = _shorter_rest(view, together)
    if view.exit_lateness_long is None or view.shape.node_count > 1:
        return late
    return late + zero_if_missing(view.exit_lateness_long)


def _shorter_rest(view: View, together: bool) -> Floats:
    """Return (n, P, D, T) how late ranks leave as a barrier at the end shows it, else 0 for all."""
    late = np.asarray(-view.residual_long)
    return late if together else np.where(np.isfinite(late), 0.0, np.nan)


RESOLUTION_SECONDS = 1e-6
"""Resolution of records."""

EARLY_SHARE = 0.2
"""The earliest fifth of a group is far from the slow hop even if a node holds half of it."""


def _hop_ends(view: View, lag: Floats, several: bool) -> tuple[int, ...]:
    """Return the ranks at the slow hop: those that leave last, or the node whose ranks do.

    If none is known to leave after others, all members of the one slow group are returned. Of
    several groups there are none then, or if the nodes of all their ranks are unknown.
    """
    flat = lag.ravel()
    order = [int(rank) for rank in np.argsort(-flat, kind="stable") if np.isfinite(flat[rank])]
    if not order or not flat[order[0]] > 0:
        return () if several else tuple(order)
    if not several:
        return tuple(rank for rank in order[:2] if flat[rank] >= OTHER_END * flat[order[0]])
    nodes = view.shape.nodes.ravel()
    known = np.unique(nodes[np.isfinite(flat) & (nodes >= 0)])
    if not len(known):
        return ()
    sums = [flat[(nodes == node) & np.isfinite(flat)].mean() for node in known]
    worst = known[int(np.argmax(sums))]
    return tuple(rank for rank in order if nodes[rank] == worst)


def _cost(view: View, before: Floats) -> float:
    """Return the share of the newest steps that normal transfer times would save."""
    newest = view.transfer[-COST_STEPS:]
    lead = _lead(view)
    now = np.fmax.reduce(newest - lead, axis=(1, 2))
    usual = float(np.fmax.reduce(before - lead, axis=None))
    return float(mean((now - usual) / view.duration[-COST_STEPS:]))


def _lead(view: View) -> Floats:
    """Return (P, 1) how long before the first stage each stage starts its exchange."""
    stages = mean(view.stage)[:, None]
    if view.shape.wall:
        return np.asarray(stages[0] - stages)
    ready = gradients_ready(np.zeros_like(stages), stages, view.shape.microbatches)
    return np.asarray(ready[0] - ready)


def _slow_from_start(view: View) -> Candidate | None:
    """Find a link by lag alone: at most two ranks, or one node, leave clearly after all others."""
    if view.shape.replicas < FEWEST_MEMBERS or len(view.residual_long) < STEPS_FROM_START:
        return None
    least = COST_FROM_START * LAG_SHARE * view.step_seconds
    # Whether a barrier ends the steps is sought only where that can matter: it takes longest.
    if not any(_hints_at_lag(_lateness_from_start(view, one), least) for one in (True, False)):
        return None
    lateness = _lateness_from_start(view, step_ends.are_together(view))
    if not _hints_at_lag(lateness, least):
        return None
    lag, score = _lag(lateness[-LONG_STEPS:])
    late = np.asarray((score > LAG_FROM_START) & (lag > least))
    if not late.any():
        late = _late_node(view, lag, score, NODE_TIMES * least)
    if not late.any() or late.mean() > MAXIMUM_LATE:
        return None
    if _leave_in_turn(view, lag, late):
        return None
    cost = min(float(lag[late].max()) / LAG_SHARE / view.step_seconds, 1.0)
    ranks = _hop_ends(view, np.where(late, lag, -np.inf), bool(late.sum() > 2))
    level = float(np.fmax.reduce(mean(view.transfer), axis=None))
    if float(lag[late].max()) > _longest_lag(view.shape.replicas) * level:
        return None  # more than an exchange of that length can leave anybody behind
    cost = min(cost, level / view.step_seconds)
    expected = max(level - cost * view.step_seconds, 0.0)
    return Candidate("network_link", cost, ranks, -1, level, expected, 0.5, shown_by="from_start")


def _leave_in_turn(view: View, lag: Floats, late: Booleans) -> bool:
    """Return True if ranks leave one after the other, as stages do that send each other messages.

    A hop has two ends, and on one node there is nothing else that is late.
    """
    alike = lag >= OTHER_END * float(lag[late].max())
    return bool(alike.sum() > PAIR and (late.sum() <= PAIR or view.shape.node_count == 1))


def _hints_at_lag(lateness: Floats, least: float) -> bool:
    """Return True if some rank is late in the newest steps, whether or not beyond chance."""
    hint = mean(lateness[-WINDOW_STEPS:])
    return float(np.fmax.reduce(hint, axis=None)) > least / 2


def _late_node(view: View, lag: Floats, score: Floats, least: float) -> Booleans:
    """Return the positions on a node whose ranks are late beyond chance only taken together."""
    nodes = view.shape.nodes
    known = np.isfinite(score) & (nodes >= 0)
    if not known.any():
        return np.zeros_like(known)
    count = np.maximum(np.bincount(nodes[known]), 1)
    surplus = score[known] - np.median(score[known])
    sums = np.bincount(nodes[known], weights=surplus) / np.sqrt(count)
    means = np.bincount(nodes[known], weights=lag[known]) / count
    worst = int(np.argmax(sums))
    return np.asarray((nodes == worst) & (sums[worst] > LAG_FROM_START) & (means[worst] > least))


NODE_TIMES = 2.0
"""Times the minimum lag of a single rank for ranks of a node that are named together: hosts differ
slightly in the time that they need outside of steps."""

FEWEST_MEMBERS = 4
"""In smaller groups both ends of a hop are half of the group and nothing is left to compare
with."""

MAXIMUM_LAG_SHARE = 0.1
"""Share of the whole exchange: a rank that lags by more is late for another reason."""

LAST_PIECES = 1.25
"""Pieces of a ring's exchange, with a margin, that are still on their way over the slow hop when
the others are done."""

OTHER_END = 0.25
"""Fraction of the lag of the last rank from which on the next one is taken for the other end of its
hop. If only the receiver lags, as in one direction, the other end is unknown."""


def _longest_lag(members: int) -> float:
    """Return the share of an exchange by which the end of a slow hop may leave after the others.

    A ring passes each piece on 2 (n - 1) times, one after the other: in a group of four the last
    piece takes a sixth of the time (measured on gloo: 0.17), in larger ones less.
    """
    return max(MAXIMUM_LAG_SHARE, LAST_PIECES / (2 * (members - 1)))


STEPS_FROM_START = 32
"""Steps over which lag is averaged before it is conclusive alone."""

COST_FROM_START = 0.04
"""Share of the step: lag is 4 % of the excess, and a smaller one drowns in noise."""

MAXIMUM_LATE = 0.5
"""The ends of one hop are few."""
