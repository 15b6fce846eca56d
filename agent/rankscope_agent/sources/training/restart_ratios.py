"""What a restart of a rank's process changed of how it trains; no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping

LEARNING_RATE, BATCH, WORLD_SIZE = "learning_rate", "batch_samples", "world_size"
QUANTITIES = (LEARNING_RATE, BATCH, WORLD_SIZE)


class RestartRatios:
    """Values of a rank's newest process over those of the one before it.

    The learning rate is compared where one process ended and the next began, as schedules move it
    in between; of batches the largest of each process count, as the last one of an epoch is small.
    """

    __slots__ = ("_before", "_created_unix_ns", "_first", "_now", "_process", "at_unix_ns")

    def __init__(self) -> None:
        self._created_unix_ns = 0
        self._process: tuple[int, int] | None = None
        self._first: dict[str, float] = {}
        self._now: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self.at_unix_ns: int | None = None

    def begin(self, process: tuple[int, int], created_unix_ns: int) -> None:
        """Take a ring; a process may have several, one after the other.

        Args:
            process: its number, and when it started, in ticks.
            created_unix_ns: when the ring was made.
        """
        if created_unix_ns <= self._created_unix_ns:
            return
        self._created_unix_ns = created_unix_ns
        if self._process is not None and process != self._process:
            self.at_unix_ns = created_unix_ns
            self._before = {**self._before, **self._now}
            self._first, self._now = {}, {}
        self._process = process

    def note(self, quantity: str, value: float | None, created_unix_ns: int) -> None:
        """Take what a process says now, by its ring; those of older rings change nothing."""
        if value is None or created_unix_ns != self._created_unix_ns:
            return
        self._first.setdefault(quantity, value)
        largest = quantity == BATCH
        self._now[quantity] = max(value, self._now.get(quantity, value)) if largest else value

    def known(self) -> Mapping[str, float]:
        """Return the ratios of what both processes said and was not zero."""
        after = {**self._now, **{k: v for k, v in self._first.items() if k == LEARNING_RATE}}
        return {
            quantity: after[quantity] / before
            for quantity, before in self._before.items()
            if quantity in after and before > 0
        }
