"""Sums up what a rank reported of its training, across process restarts; no I/O, no clock."""

from __future__ import annotations

from collections import Counter

from rankscope_agent.sources.training.reported import COUNTS, WHERE_NOT_FINITE, Signal, Signals

MAX_PROCESSES = 8
"""Processes of a rank whose counts are kept separately; those of older ones no longer change."""

MAX_FOLDED = 64
"""Older processes that are remembered, as many as one rank can have rings open: such a ring is read
in every run, and again by the next agent."""

SETTLED_LOSSES = 20
"""Losses after which a process's level is settled: it is an average of about as many."""


class SignalTotals:
    """What one rank has reported so far; `newest` holds the current values of its newest process.

    `level_before` is the level of the losses at the end of the process before the newest; None if
    there is none, or the newest has not settled. `lowest_level` is the lowest of the newest
    process; None before it has settled. `counted_unix_ns` is when something was last counted.
    `where_not_finite` is where losses last became infinite or NaN, in whichever process that was,
    because such losses often end it. `counts` are those of the newest processes by the creation
    time of their rings, `folded` the sums of older ones, and `folded_unix_ns` which ones these are.
    """

    __slots__ = (
        "_before", "_created_unix_ns", "counted_unix_ns", "counts", "folded", "folded_unix_ns",
        "lowest_level", "newest", "where_not_finite",
    )  # fmt: skip

    def __init__(self) -> None:
        self.newest: Signals = {}
        self._created_unix_ns = 0
        self.counts: dict[int, Counter[Signal]] = {}
        self.folded: Counter[Signal] = Counter()
        self.folded_unix_ns: set[int] = set()
        self._before: float | None = None
        self.lowest_level: float | None = None
        self.counted_unix_ns: dict[Signal, int] = {}
        self.where_not_finite: Signals = {}

    def note(self, signals: Signals, created_unix_ns: int) -> None:
        """Record the current values of a process, identified by the creation time of its ring."""
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
        if self._is_folded(created_unix_ns):
            return
        self._note_counts(signals, self.counts.get(created_unix_ns, Counter()))
        self.counts[created_unix_ns] = Counter(
            {kind: int(reading.value) for kind, reading in signals.items() if kind in COUNTS}
        )
        if len(self.counts) > MAX_PROCESSES:
            self._fold(min(self.counts))

    def knows(self, created_unix_ns: int) -> bool:
        """Return True if what a process counted is in the sums."""
        return created_unix_ns in self.counts or self._is_folded(created_unix_ns)

    def _is_folded(self, created_unix_ns: int) -> bool:
        """Return True if a process's counts are in the sums; also for one too old to be known."""
        known = self.folded_unix_ns
        return created_unix_ns in known or (
            len(known) == MAX_FOLDED and created_unix_ns < min(known)
        )

    def _fold(self, created_unix_ns: int) -> None:
        self.folded.update(self.counts.pop(created_unix_ns))  # + would drop what is left out
        self.folded_unix_ns.add(created_unix_ns)
        if len(self.folded_unix_ns) > MAX_FOLDED:
            self.folded_unix_ns.remove(min(self.folded_unix_ns))

    def leave_out(self, signals: Signals) -> None:
        """Begin with zero although a process has counts by now."""
        counts = {kind: int(one.value) for kind, one in signals.items() if kind in COUNTS}
        self.folded.subtract(counts)

    def count(self, signal: Signal) -> int:
        """Return how often something happened in all processes of the rank."""
        return self.folded[signal] + sum(counts[signal] for counts in self.counts.values())

    def value(self, signal: Signal) -> float | None:
        """Return a value of the newest process; None if it does not report it."""
        reading = self.newest.get(signal)
        return None if reading is None else reading.value

    @property
    def level_before(self) -> float | None:
        """The level of losses before the newest process, once that has its own level."""
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
