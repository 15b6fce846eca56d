"""How training changed with a restart of a rank's process; no I/O, no clock."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence

LEARNING_RATE, BATCH, WORLD_SIZE = "learning_rate", "batch_samples", "world_size"


STEPS, FEWEST_STEPS, USUAL_SHARE = 64, 16, 0.75
"""Newest steps from which the usual batch size is determined, if most of them share it: the last
batch of an epoch is smaller, and what an evaluation fetched is in the next step. Jobs with varying
batches have none."""


class RestartRatios:
    """Values of a rank's newest process divided by those of the previous one.

    The learning rate is compared where one process ended and the next began, because schedules
    change it in between; batch size is the usual one of a process's newest steps.
    """

    __slots__ = (
        "_batches",
        "_before",
        "_created_unix_ns",
        "_first",
        "_now",
        "_process",
        "at_unix_ns",
    )

    def __init__(self) -> None:
        self._created_unix_ns = 0
        self._process: tuple[int, int] | None = None
        self._first: dict[str, float] = {}
        self._now: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._batches: deque[int] = deque(maxlen=STEPS)
        self.at_unix_ns: int | None = None

    def begin(self, process: tuple[int, int], created_unix_ns: int) -> None:
        """Begin a ring; a process may have several, one after another.

        Args:
            process: its PID, and its start in ticks.
            created_unix_ns: when the ring was created.
        """
        if created_unix_ns <= self._created_unix_ns:
            return
        self._created_unix_ns = created_unix_ns
        if self._process is not None and process != self._process:
            self.at_unix_ns = created_unix_ns
            self._before = {**self._before, **self._now}
            self._first, self._now = {}, {}
            self._batches.clear()
        self._process = process

    def note(self, quantity: str, value: float | None, created_unix_ns: int) -> None:
        """Record the current values of a process, by its ring; those of older rings are ignored."""
        if value is None or created_unix_ns != self._created_unix_ns:
            return
        self._first.setdefault(quantity, value)
        self._now[quantity] = value

    def note_batches(self, samples: Sequence[int], created_unix_ns: int) -> None:
        """Record the numbers of samples of further steps, as far as known."""
        if created_unix_ns == self._created_unix_ns:
            self._batches.extend(samples)
            self.note(BATCH, _usual(self._batches), created_unix_ns)

    def known(self) -> Mapping[str, float]:
        """Return the ratios of values that both processes reported and that were not zero."""
        after = {**self._now, **{k: v for k, v in self._first.items() if k == LEARNING_RATE}}
        return {
            quantity: after[quantity] / before
            for quantity, before in self._before.items()
            if quantity in after and before > 0
        }


def _usual(batches: Collection[int]) -> float | None:
    """Return the samples that most steps have; None if there are too few, or they differ."""
    if len(batches) < FEWEST_STEPS:
        return None
    ((samples, count),) = Counter(batches).most_common(1)
    return float(samples) if count >= USUAL_SHARE * len(batches) and samples else None
