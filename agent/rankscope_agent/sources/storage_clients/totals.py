"""What a client of a file system did so far: values, and how several mounts of one add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

READ, WRITE, METADATA = "read", "write", "metadata"

MAX_NUMBER = 10**19
"""Counters of kernels have 64 bits."""


@dataclass(slots=True)
class ClientTotals:
    """Sums by kind of operation; what is not counted is not there.

    Args:
        operations: by read, write and metadata.
        seconds: likewise.
        moved: bytes by read and write.
    """

    operations: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int, microseconds: int | None) -> None:
        """Count operations, and how long they took where that is known."""
        self.operations[kind] = self.operations.get(kind, 0) + count
        if microseconds is not None:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + microseconds / 1e6

    def add_bytes(self, kind: str, count: int) -> None:
        """Count bytes."""
        self.moved[kind] = self.moved.get(kind, 0) + count


def merged(several: Iterable[ClientTotals]) -> ClientTotals:
    """Return the sums over several mounts of one file system."""
    whole = ClientTotals()
    for one in several:
        for target, values in ((whole.operations, one.operations), (whole.moved, one.moved)):
            _add(target, values)
        for kind, seconds in one.seconds.items():
            whole.seconds[kind] = whole.seconds.get(kind, 0.0) + seconds
    return whole


def _add(target: dict[str, int], values: Mapping[str, int]) -> None:
    for kind, value in values.items():
        target[kind] = target.get(kind, 0) + value
