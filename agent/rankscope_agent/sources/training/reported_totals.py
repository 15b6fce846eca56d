"""Sums up what a rank said of its training, across restarts of its process; no I/O, no clock."""

from __future__ import annotations

from collections import Counter

from rankscope_agent.sources.training.reported import COUNTS, WHERE_NOT_FINITE, Signal, Signals

MAX_PROCESSES = 8
"""Processes of a rank whose counts are kept apart; what older ones counted does not change."""

SETTLED_LOSSES = 20
"""Losses after which a process's level is one: it is an average of about as many."""


class SignalTotals:
    """What one rank said so far; `newest` is what its newest process says now.

    `level_before` is the level of the losses where the process before the newest left it, None
    where there is none, or the newest has not settled. `lowest_level` is the lowest of the newest
    process, None before it has settled. `counted_unix_ns` is when something was counted last.
    `where_not_finite` is where losses last became infinite or NaN, in whatever process that was:
    such losses often end it.
    """

    __slots__ = (
        "_before", "_counts", "_created_unix_ns", "_folded", "counted_unix_ns", "lowest_level",
        "newest", "where_not_finite",
    )  # fmt: skip

    def __init__(self) -> None:
        self.newest: Signals = {}
        self._created_unix_ns = 0
        self._counts: dict[int, Counter[Signal]] = {}
        self._folded: Counter[Signal] = Counter()
        self._before: float | None = None
        self.lowest_level: float | None = None
        self.counted_unix_ns: dict[Signal, int] = {}
        self.where_not_finite: Signals = {}

    def note(self, signals: Signals, created_unix_ns: int) -> None:
        """Take what a process says now, by when its ring was made."""
        if not signals:
            return
        if created_unix_ns > self._created_unix_ns:
            self._before = self._level()
            self._created_unix_ns, self.newest = created_unix_ns, {}
            self.lowest_level = None
        if created_unix_ns == self._created_unix_ns:
            self.newest = signals
            self._note_level()
        self._note_where(signals)
        self._note_counts(signals, self._counts.get(created_unix_ns, Counter()))
        self._counts[created_unix_ns] = Counter(
            {kind: int(reading.value) for kind, reading in signals.items() if kind in COUNTS}
        )
        if len(self._counts) > MAX_PROCESSES:
            self._folded += self._counts.pop(min(self._counts))

    def count(self, signal: Signal) -> int:
        """Return how often something happened in all processes of the rank."""
        return self._folded[signal] + sum(counts[signal] for counts in self._counts.values())

    def value(self, signal: Signal) -> float | None:
        """Return what the newest process says, None for what it does not."""
        reading = self.newest.get(signal)
        return None if reading is None else reading.value

    @property
    def level_before(self) -> float | None:
        """The level of losses before the newest process, once that has a level of its own."""
        return self._before if self._settled() else None

    def _note_counts(self, signals: Signals, before: Counter[Signal]) -> None:
        for kind, reading in signals.items():
            if kind in COUNTS and reading.value > before[kind]:
                known = self.counted_unix_ns.get(kind, 0)
                self.counted_unix_ns[kind] = max(known, reading.unix_ns)

    def _note_where(self, signals: Signals) -> None:
        began = signals.get(Signal.NOT_FINITE_SINCE)
        known = self.where_not_finite.get(Signal.NOT_FINITE_SINCE)
        if began is not None and (known is None or began.unix_ns >= known.unix_ns):
            self.where_not_finite = {
                kind: signals[kind] for kind in WHERE_NOT_FINITE if kind in signals
            }

    def _note_level(self) -> None:
        level = self.value(Signal.LOSS_LEVEL)
        if self._settled() and level is not None:
            self.lowest_level = (
                level if self.lowest_level is None else min(level, self.lowest_level)
            )

    def _level(self) -> float | None:
        return self.value(Signal.LOSS_LEVEL) if self._settled() else self._before

    def _settled(self) -> bool:
        losses = self.value(Signal.LOSSES)
        return losses is not None and losses >= SETTLED_LOSSES
