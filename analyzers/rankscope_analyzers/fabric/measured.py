"""What the ranks of a fabric check measured, gathered on rank 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Link = tuple[int, int]
"""The rank that sends, and the rank that receives."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """All-reduces of one size over all ranks.

    Args:
        message_bytes: contribution of each rank.
        seconds: mean duration, on the slowest rank.
        correct: True if every rank got the right sums.
    """

    message_bytes: int
    seconds: float
    correct: bool

    def algorithm_bandwidth(self) -> float:
        """Return bytes of the message per second."""
        return self.message_bytes / self.seconds

    def bus_bandwidth(self, ranks: int) -> float:
        """Return bytes per second that each link carries: 2(n-1)/n of the message leave a rank.

        As nccl-tests defines it (doc/PERFORMANCE.md), so that it compares with a link's speed.
        """
        return self.algorithm_bandwidth() * 2 * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """The speed of one rank's GPU.

    Args:
        flops: floating-point operations per second of a matrix product.
        to_device: bytes per second from the host's memory.
        to_host: bytes per second back.
    """

    flops: float
    to_device: float
    to_host: float


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring of all ranks in their order, each of which sends to the next.

    Args:
        rate: of its slowest link, while all carry at once, bytes per second.
        seconds: that a small message takes around the ring: half of each link's echo.
    """

    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One fabric check.

    Args:
        hosts: of each rank.
        backend: gloo or nccl.
        reductions: all-reduces, the smallest message first.
        rates: bytes per second of a large message, by link; the best of several.
        round_trips: seconds of a small message and its echo, by link; the best of several.
        devices: of each rank with a GPU.
    """

    hosts: Sequence[str]
    backend: str
    reductions: Sequence[Reduction]
    rates: Mapping[Link, float]
    round_trips: Mapping[Link, float]
    devices: Mapping[int, DeviceSpeed]

    def ring(self) -> Ring | None:
        """Return what a ring of all ranks in order carries, None if a link of it is unknown."""
        ranks = len(self.hosts)
        links = [(rank, (rank + 1) % ranks) for rank in range(ranks)] if ranks > 1 else []
        if not links or not all(one in self.rates and one in self.round_trips for one in links):
            return None
        return Ring(
            min(self.rates[one] for one in links), sum(self.round_trips[one] for one in links) / 2
        )
