"""Check: the host stalls single ranks occasionally, anywhere in the job or on one node."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.binomial import some_hit_so_often
from rankscope_analyzers.stragglers.slow_kernels import REPLICA_CERTAINTY
from rankscope_analyzers.stragglers.view import LONG_STEPS, Candidate, View

ANY_RANK_SHARE = 0.15
"""Share of the newest `LONG_STEPS` steps with a stall anywhere that is no longer chance."""

DENSE_STEPS, DENSE_STALLS = 12, 4
"""Or this many stalls in this few of the newest steps: frequent ones show sooner."""

NODE_STALLS = 3
"""Steps with a stall on one node, of those remembered, before the node is named: healthy hosts
stall a rank once in thousands of steps."""

CHANCE = 0.01
"""Maximum probability that stalls all over the job hit one node, or one rank, so often by
chance."""

CERTAINTY_WITHOUT_LOCATION = 0.8
"""Certainty that stalls all over the job have no common location."""

LONG_SHARE, LONG_TIMES = 0.5, 3.0
"""Stalls at least half as long as the third longest, and three times as long as the median one, are
of another kind than the others: a rank that pauses once in a while, among programs that constantly
take CPUs from each other."""

CHANCE_OF_LONG = 0.001
"""Like `CHANCE`, for these: they are selected by length, and few."""

NODE_SHARE, NODE_SHARE_OF_TWO = 0.7, 0.2
"""One node with this share of all stalls is named; the share is larger if there are few nodes:
chance gives one of two nodes half of all stalls."""

MINIMUM_COST = 0.008
"""Share of the time; stalls count from 1 % on."""

RATE_STALLS = 6
"""Newest stalls that define their rate: earlier steps may be from before the fault."""


def stalled_ranks(view: View) -> Candidate | None:
    """Return the node whose host stalls its ranks, one of its ranks, or stalls all over the job."""
    struck = view.spikes.longest > 0
    count = int(struck.sum())
    if count < NODE_STALLS:
        return None
    stalls, alone = view.spikes.longest, view.shape.node_count < 2
    suspects, likely = _suspects(view, count)
    if len(suspects):
        hits = int(view.spikes.nodes[suspects[0]])
        if some_hit_so_often(count, hits, likely) <= CHANCE:
            certainty = 1.0 if len(suspects) == 1 else REPLICA_CERTAINTY
            return _candidate(view, _ranks(view, suspects), certainty, stalls)
    by_rank = alone or view.shape.contents != "waits"  # elsewhere a stall is of a whole replica
    ranks = _single_rank(view, struck, CHANCE) if by_rank else ()
    if alone and not ranks and (ranks := _single_rank(view, far := _long(stalls), CHANCE_OF_LONG)):
        stalls = np.where(far, stalls, 0.0)
    often = float(struck[-LONG_STEPS:].sum()) > ANY_RANK_SHARE * LONG_STEPS
    often = often or int(struck[-DENSE_STEPS:].sum()) >= DENSE_STALLS
    if not ranks and (len(suspects) or view.crowded or not often):
        return None  # on shared CPUs every rank is stopped occasionally
    return _candidate(
        view, ranks, 1.0 if ranks else CERTAINTY_WITHOUT_LOCATION, _stalls_of(view, ranks, stalls)
    )


def _chance_share(view: View) -> Floats:
    """Return (N,) the share of the steps with stalls in which chance hits each node.

    A stall hits one rank, so this is the node's share of the ranks. Under wall timing it hits a
    replica, so that a node with a rank of every replica is hit by every stall. If several nodes are
    hit in one step, all shares grow accordingly.
    """
    shape, per_node = view.shape, view.spikes.nodes
    homes = shape.nodes.transpose(1, 0, 2).ravel()
    known = np.flatnonzero(homes >= 0)
    unit = known // (shape.world // shape.replicas) if shape.wall else known
    pairs = np.unique(unit * len(per_node) + homes[known])
    held = np.bincount(pairs % len(per_node), minlength=len(per_node)) / len(np.unique(unit))
    struck = np.count_nonzero(view.spikes.longest)
    return np.asarray(np.minimum(held * per_node.sum() / (struck * held.sum()), 1.0))


def _suspects(view: View, count: int) -> tuple[Integers, float]:
    """Return the indistinguishable nodes that nearly all stalls hit, and the share of chance.

    A node that every stall must hit is left out.
    """
    per_node = view.spikes.nodes
    if view.shape.node_count < 2:
        return per_node[:0], 1.0
    chance_share = _chance_share(view)
    most = np.flatnonzero((per_node == per_node.max()) & (chance_share < 1))
    share = np.minimum(NODE_SHARE + NODE_SHARE_OF_TWO * 2 * chance_share[most], 1.0)
    found = most[per_node[most] >= count * share]
    return found, float(chance_share[found[0]]) if len(found) else 1.0


def _long(stalls: Floats) -> Booleans:
    """Return the steps with the stalls that are far longer than most, none if few are."""
    known = np.sort(stalls[stalls > 0])
    third = float(known[-NODE_STALLS])  # a single longest one is no reference
    least = max(LONG_SHARE * third, LONG_TIMES * float(np.median(known)))
    return np.asarray(stalls >= least)


def _single_rank(view: View, chosen: Booleans, chance: float) -> tuple[int, ...]:
    """Return the rank that had nearly all of some stalls.

    Args:
        view: the newest steps.
        chosen: (n,) steps whose stalls count.
        chance: maximum probability that they hit one rank this often by chance.
    """
    worst = view.spikes.worst[chosen].astype(np.int64)
    if len(worst) < NODE_STALLS:
        return ()
    rank = int(np.argmax(np.bincount(worst)))
    hits = int((worst == rank).sum())
    alike = view.shape.replicas if view.shape.wall else view.shape.world
    certain = some_hit_so_often(len(worst), hits, 1 / alike) <= chance
    return (rank,) if certain and hits >= NODE_SHARE * len(worst) else ()


def _stalls_of(view: View, ranks: tuple[int, ...], stalls: Floats) -> Floats:
    """Return the stalls of the rank that is named, all stalls if none is."""
    return np.where(view.spikes.worst == ranks[0], stalls, 0.0) if ranks else stalls


def _candidate(
    view: View, ranks: tuple[int, ...], certainty: float, longest: Floats
) -> Candidate | None:
    first = int(np.flatnonzero(longest > 0)[-RATE_STALLS:][0])
    since = longest[first:]
    share = float(since.mean()) / view.step_seconds
    if share < MINIMUM_COST:
        return None
    # Counted from a stall on, n of them fill n - 1 intervals.
    count = int((since > 0).sum())
    cost = share * max(count - 1, 1) / count
    usual = float(since[since > 0].mean())
    # Of stalls all over the job, the earlier ones that are remembered may be chance.
    before = len(longest) - len(view.duration) - int(np.argmax(longest > 0)) if ranks else 0
    began = -max(before, 0)
    return Candidate("host_transient", cost, ranks, -1, usual, 0.0, certainty, began=began)


def _ranks(view: View, nodes: Integers) -> tuple[int, ...]:
    """Return the ranks of some nodes, those that stalled most often first."""
    worst = view.spikes.worst[view.spikes.worst >= 0].astype(np.int64)
    count = np.bincount(worst, minlength=view.shape.world)
    members = np.flatnonzero(np.isin(view.shape.nodes.ravel(), nodes))
    return tuple(int(rank) for rank in members[np.argsort(-count[members], kind="stable")])
