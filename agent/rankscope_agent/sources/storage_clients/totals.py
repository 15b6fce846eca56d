"""The totals of a file system's client, and how those of several mounts are added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

READ, WRITE, METADATA = "read", "write", "metadata"

MAX_NUMBER = 10**19
"""Kernel counters have 64 bits."""


@dataclass(slots=True)
class ClientTotals:
    """Sums by kind of operation; what is not counted is absent.

    Args:
        operations: by read, write and metadata.
        seconds: likewise.
        moved: bytes by read and write.
    """

    operations: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int, microseconds: int | None) -> None:
        """Add operations, and their duration if known."""
        self.operations[kind] = self.operations.get(kind, 0) + count
        if microseconds is not None:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + microseconds / 1e6

    def add_bytes(self, kind: str, count: int) -> None:
        """Add bytes."""
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
