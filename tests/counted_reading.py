"""Clocks that go by what is read of files, so that a budget of time means the same everywhere."""

from __future__ import annotations

import os

from rankscope_agent.sources.training.read_turns import CPU_SECONDS, ReadTurns

SECONDS_OF_BYTE = 1e-7


class Reading:
    """Counts what is read from here on; a second is ten megabytes of it.

    Args:
        seconds_of_byte: how long a byte takes.
    """

    def __init__(self, monkeypatch, seconds_of_byte: float = SECONDS_OF_BYTE) -> None:
        self.seconds = 0.0
        self._of_byte = seconds_of_byte
        self._pread = os.pread
        monkeypatch.setattr(os, "pread", self._counted)

    def __call__(self) -> float:
        return self.seconds

    def _counted(self, descriptor: int, size: int, offset: int) -> bytes:
        data = self._pread(descriptor, size, offset)
        self.seconds += len(data) * self._of_byte
        return data

    def turns(self) -> ReadTurns:
        """Return turns for which reading alone takes time."""
        return ReadTurns(self, self)


def turns_of_bytes(monkeypatch, count: int) -> ReadTurns:
    """Return turns of which each run may read so many bytes."""
    return Reading(monkeypatch, CPU_SECONDS / count).turns()
