"""The numbers of a job's nodes, in the order in which they first appear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope_analyzers.numeric.arrays import Integers
from rankscope_analyzers.stragglers.culprit_changes import UNKNOWN_NODE
from rankscope_analyzers.stragglers.shape import Shape

MAXIMUM_NODES = 1 << 16
"""Nodes of a job that are remembered by name: four times those of the largest one, so that a job
that moves between nodes for months does not fill the memory with names."""


def numbered(known: dict[str, int], names: Sequence[str]) -> Integers:
    """Return the numbers of nodes, -1 for those beyond the limit; new ones become known."""
    for name in names:
        if len(known) < MAXIMUM_NODES:
            known.setdefault(name, len(known))
    return np.array([known.get(name, -1) for name in names], dtype=np.int64)


def names_of(known: dict[str, int], shape: Shape, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the nodes of some ranks, including any that are not in the shape."""
    positions = shape.positions_of(np.array(ranks, dtype=np.int64))
    numbers = np.where(positions >= 0, shape.nodes.ravel()[positions], -1)
    names = list(known)
    return tuple(names[n] if n >= 0 else UNKNOWN_NODE for n in numbers)
