"""How the ranks of a run are arranged, and what that says about its timing columns."""

from __future__ import annotations

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
        wall: compute is wall time, tensor and pipeline waits included.
        nodes: (P, D, T) node number of each rank, -1 where it never reported.
    """

    pipeline: int
    replicas: int
    tensor: int
    microbatches: int
    wall: bool
    nodes: Integers

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return (P, D, T)."""
        return self.pipeline, self.replicas, self.tensor

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return self.pipeline * self.replicas * self.tensor

    @property
    def node_count(self) -> int:
        """Return the number of nodes from which some rank reported."""
        return len(np.unique(self.nodes[self.nodes >= 0]))

    def members(self, node: int) -> Integers:
        """Return the ranks on a node, rising."""
        return np.flatnonzero(self.nodes.ravel() == node)

    def replica(self, index: int) -> Integers:
        """Return the ranks of a replica, rising."""
        ranks = np.arange(self.world).reshape(self.sizes)
        return np.sort(ranks[:, index].ravel())
