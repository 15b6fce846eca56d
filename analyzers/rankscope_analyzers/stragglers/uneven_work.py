"""Signs that ranks compute longer because of their work, not because of their GPUs.

A slow GPU is at one place, and makes none of the others faster. What every node has at the same
places comes from how the work is divided: the last rank of a context-parallel group, a rank that
holds an encoder besides. Where all ranks depart from their usual shares of the compute, work moves
between them: experts that get more tokens for a while, or files with longer samples.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.medians import mean, spread
from rankscope_analyzers.stragglers.shape import Shape

UNEQUAL = 0.035
"""Standard deviation between ranks, as a share of their compute, that healthy GPUs of one model do
not reach: those differ by up to 4 %, and keep their differences."""

STANDS_OUT = 4.0
"""Standard deviations by which a rank must exceed the others to be slow all the same."""

FEWEST_OTHERS = 3
"""Ranks that show how much the work of ranks differs."""

FEWEST_NODES = 3
"""Nodes with one slow rank at the same place: on two, that happens by chance to two GPUs."""


def explains(shape: Shape, changes: Floats, accused: Booleans) -> bool:
    """Return True if the work of some ranks explains that they compute longer.

    Args:
        shape: arrangement of the ranks, each a replica of its own.
        changes: (n, P, D, T) compute of each rank over its usual share of it.
        accused: (P, D, T) true for those that compute longer.
    """
    return is_divided(shape, accused) or has_moved(changes, accused)


def is_divided(shape: Shape, accused: Booleans) -> bool:
    """Return True if the accused ranks have the same places on every node.

    Args:
        shape: arrangement of the ranks.
        accused: (P, D, T) true for those that compute longer.
    """
    nodes, slow = shape.nodes.ravel(), accused.ravel()
    places = {tuple(slow[nodes == node].tolist()) for node in np.unique(nodes[nodes >= 0])}
    if len(places) != 1:
        return False
    (same,) = places
    count = sum(same)
    return 0 < count < len(same) and shape.node_count >= (2 if count > 1 else FEWEST_NODES)


def has_moved(changes: Floats, accused: Booleans) -> bool:
    """Return True if the shares of the other ranks differ too much for the accused ones' to count.

    What a rank varies by from step to step says nothing about its share, and is subtracted.

    Args:
        changes: (n, P, D, T) compute of each rank over its usual share of it.
        accused: (P, D, T) true for those that compute longer.
    """
    level, noise = mean(changes), spread(changes)
    others = ~accused & np.isfinite(level) & np.isfinite(noise)
    suspects = accused & np.isfinite(level)
    if others.sum() < FEWEST_OTHERS or not suspects.any():
        return False
    by_chance = float(np.mean(noise[others] ** 2)) / len(changes)
    between = float(np.sqrt(max(float(level[others].var()) - by_chance, 0.0)))
    longer = float(level[suspects].min() - np.median(level[others]))
    return between > UNEQUAL and longer < STANDS_OUT * between
