"""Conclusion: the host stops single ranks now and then, on any rank or on one node."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.stragglers.view import LONG_STEPS, Candidate, Spikes, View

ANY_RANK_SHARE = 0.15
"""Share of the newest `LONG_STEPS` steps with a stall somewhere that is no longer bad luck."""

DENSE_STEPS, DENSE_STALLS = 12, 4
"""Or so many of so few newest steps: frequent stalls need no long look."""

NODE_STALLS = 3
"""Steps with a stall on one node, of those remembered, before the node is named: healthy hosts
stall a rank once in thousands of steps."""

CHANCE = 0.01
"""Probability, at most, that stalls all over the job struck one node only."""

NODE_SHARE, NODE_SHARE_OF_TWO = 0.7, 0.2
"""This share of all stalls on one node names it, and more where there are few nodes: chance gives
one of two nodes half of all stalls."""

MINIMUM_COST = 0.008
"""Share of the time; stalls count from 1 % on."""

RATE_STALLS = 6
"""The newest stalls from which their rate is taken: what lies before may be before the fault."""


def stalls(view: View) -> Candidate | None:
    """Return the node whose host stalls its ranks, or that ranks stall all over the job."""
    struck = view.spikes.longest > 0
    if int(struck.sum()) < NODE_STALLS:
        return None
    per_node = view.spikes.nodes
    node = int(np.argmax(per_node))
    nodes = len(np.unique(view.shape.nodes))
    if nodes > 1 and per_node[node] >= struck.sum() * (NODE_SHARE + NODE_SHARE_OF_TWO * 2 / nodes):
        needed = max(NODE_STALLS, 1 + np.log(CHANCE) / np.log(1 / nodes))
        return _judged(view, _ranks(view, node)) if per_node[node] >= needed else None
    often = float(struck[-LONG_STEPS:].sum()) > ANY_RANK_SHARE * LONG_STEPS
    if not often and int(struck[-DENSE_STEPS:].sum()) < DENSE_STALLS:
        return None
    return _judged(view, () if nodes > 1 else _lone(view.spikes))


def _lone(spikes: Spikes) -> tuple[int, ...]:
    """Return the rank that had nearly all stalls, where one node holds the whole job."""
    worst = spikes.worst[spikes.worst >= 0].astype(np.int64)
    rank = int(np.argmax(np.bincount(worst)))
    return (rank,) if float((worst == rank).mean()) >= NODE_SHARE else ()


def _judged(view: View, ranks: tuple[int, ...]) -> Candidate | None:
    longest = view.spikes.longest
    first = int(np.flatnonzero(longest > 0)[-RATE_STALLS:][0])
    since = longest[first:]
    cost = float(since.mean()) / view.step_seconds
    if cost < MINIMUM_COST:
        return None
    usual = float(since[since > 0].mean())
    return Candidate("host_transient", cost, ranks, -1, usual, 0.0, 1.0 if ranks else 0.8)


def _ranks(view: View, node: int) -> tuple[int, ...]:
    """Return the ranks of a node, those that stalled most often first."""
    worst = view.spikes.worst[view.spikes.worst >= 0].astype(np.int64)
    count = np.bincount(worst, minlength=view.shape.world)
    members = view.shape.members(node)
    return tuple(int(rank) for rank in members[np.argsort(-count[members], kind="stable")])
