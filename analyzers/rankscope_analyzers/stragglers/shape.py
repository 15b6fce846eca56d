"""How the ranks of a run are arranged, and what that says about its timing columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Integers


@dataclass(frozen=True, slots=True)
class Shape:
    """Arrangement of one run between restarts.

    Args:
        pipeline: pipeline stages P.
        replicas: data-parallel replicas D.
        tensor: tensor-parallel ranks T.
        microbatches: micro-batches of a step.
        wall: compute is wall time: stalls of the host hide in it, and waits where `locked` says so.
        nodes: (P, D, T) node number of each rank, -1 where it never reported.
        ranks: (P, D, T) global rank in each place, -1 where there is none; None where places are
            numbered as the ranks are. Conclusions count places, and ranks are named at the end.
        timing: how compute was timed, one of `steps.records.TIMINGS`, 0 where nobody says.
        counted: the number of micro-batches is known, not assumed.
    """

    pipeline: int
    replicas: int
    tensor: int
    microbatches: int
    wall: bool
    nodes: Integers
    ranks: Integers | None = None
    timing: int = 0
    counted: bool = True

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return (P, D, T)."""
        return self.pipeline, self.replicas, self.tensor

    @property
    def world(self) -> int:
        """Return the number of places."""
        return self.pipeline * self.replicas * self.tensor

    @property
    def node_count(self) -> int:
        """Return the number of nodes from which some rank reported."""
        return len(np.unique(self.nodes[self.nodes >= 0]))

    @property
    def rank_count(self) -> int:
        """Return the number of ranks, silent ones included where their places are known."""
        return self.world if self.ranks is None else int((self.ranks >= 0).sum())

    def positions_of(self, ranks: Integers) -> Integers:
        """Return the place of each of some global ranks, -1 for those that have none."""
        if self.ranks is None:
            return np.where(ranks < self.world, ranks, -1)
        known = self.ranks.ravel()
        positions = np.full(
            max(int(known.max()), int(ranks.max(initial=0))) + 1, -1, dtype=np.int64
        )
        filled = np.flatnonzero(known >= 0)
        positions[known[filled]] = filled
        return np.asarray(positions[ranks])

    def ranks_at(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Return the global ranks in some places, in their order."""
        if self.ranks is None:
            return tuple(positions)
        return tuple(int(rank) for rank in self.ranks.ravel()[list(positions)] if rank >= 0)

    def positions_on(self, node: int) -> Integers:
        """Return the places of the ranks on a node, rising."""
        return np.flatnonzero(self.nodes.ravel() == node)

    def replica(self, index: int) -> Integers:
        """Return the places of a replica, rising."""
        ranks = np.arange(self.world).reshape(self.sizes)
        return np.sort(ranks[:, index].ravel())
