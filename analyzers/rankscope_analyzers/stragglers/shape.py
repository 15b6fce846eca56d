"""How the ranks of a run are arranged, and how their compute was timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankscope_analyzers.numeric.arrays import Integers

FEW_PEERS = 8
"""Ranks of a stage below which the reference of their compute is one of the fastest: chance makes
it the faster of two, and the second of five."""

Contents = Literal["kernels", "stalls", "waits"]
"""What compute contains besides work: nothing if kernels are timed; by the clock, stalls of the
host, and waits for tensor and pipeline peers if there are any."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Arrangement of one run between restarts.

    Args:
        pipeline: pipeline stages P.
        replicas: data-parallel replicas D.
        tensor: tensor-parallel ranks T.
        microbatches: micro-batches of a step.
        wall: True if compute is wall time that contains stalls of the host and waits for peers.
        nodes: (P, D, T) node number of each rank, -1 if it never reported.
        ranks: (P, D, T) global rank at each position, -1 for none; None if positions are numbered
            as the ranks are. Checks work on positions, the flat indices into (P, D, T); global
            ranks are looked up at the end.
        timing: how compute was timed, one of `steps.records.TIMINGS`, 0 if unknown.
        counted: True if the number of micro-batches is known, not assumed.
        contradicting: True if the groups of ranks change from record to record, so that these give
            no layout.
        job_ranks: ranks that the job should have, 0 if unknown.
        on_devices: True if hosts end steps earlier than their devices do.
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
    contradicting: bool = False
    job_ranks: int = 0
    on_devices: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return (P, D, T)."""
        return self.pipeline, self.replicas, self.tensor

    @property
    def contents(self) -> Contents:
        """Return what compute contains."""
        if not self.wall:
            return "kernels"
        return "stalls" if self.pipeline * self.tensor == 1 else "waits"

    @property
    def world(self) -> int:
        """Return the number of positions."""
        return self.pipeline * self.replicas * self.tensor

    @property
    def has_few_peers(self) -> bool:
        """Return True if so few ranks of a stage are compared that chance makes one stand out."""
        return self.replicas * self.tensor < FEW_PEERS

    @property
    def node_count(self) -> int:
        """Return the number of nodes from which some rank reported."""
        return len(np.unique(self.nodes[self.nodes >= 0]))

    @property
    def rank_count(self) -> int:
        """Return the number of ranks, including silent ones whose positions are known."""
        return self.world if self.ranks is None else int((self.ranks >= 0).sum())

    @property
    def comparable_count(self) -> int:
        """Return the number of ranks including silent ones, provided that these are a minority."""
        seen = self.rank_count
        return self.job_ranks if seen < self.job_ranks <= 2 * seen else seen

    def positions_of(self, ranks: Integers) -> Integers:
        """Return the positions of some global ranks, -1 for those that have none."""
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
        """Return the global ranks at some positions, in their order."""
        if self.ranks is None:
            return tuple(positions)
        return tuple(int(rank) for rank in self.ranks.ravel()[list(positions)] if rank >= 0)

    def positions_on(self, node: int) -> Integers:
        """Return the positions of the ranks on a node, ascending."""
        return np.flatnonzero(self.nodes.ravel() == node)

    def is_placed_like(self, other: Shape) -> bool:
        """Return True if the ranks of another run have the same positions and nodes."""
        if self.sizes != other.sizes or not np.array_equal(self.nodes, other.nodes):
            return False
        if self.ranks is None or other.ranks is None:
            return self.ranks is other.ranks
        return np.array_equal(self.ranks, other.ranks)

    def replica(self, index: int) -> Integers:
        """Return the positions of a replica, ascending."""
        ranks = np.arange(self.world).reshape(self.sizes)
        return np.sort(ranks[:, index].ravel())
