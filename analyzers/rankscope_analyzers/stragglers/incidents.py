"""One incident per fault: opened when a cause holds, closed when it ends, reopened if it flaps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankscope_analyzers.finding import FaultClass
from rankscope_analyzers.stragglers.view import Candidate

HOLDS = 3
"""Evaluations in a row that a cause must win before it opens an incident."""

HOLDS_IF_PLAIN = 2
"""As many are enough for a cause that is hard to mistake."""

PLAIN_COST = 0.06
"""Share of the step, more than twice what the conclusions ask for, that is hard to mistake."""

CHANGES = 10
"""Evaluations in a row before another cause replaces the one that was found."""

ENDS = 6
"""Evaluations in a row without the cause before its incident is closed."""

COOL_DOWN = 15
"""Evaluations after the close in which the same cause reopens its incident."""

BASE_CONFIDENCE, TIMING_ALONE = 0.5, 0.8
"""A costlier fault is harder to mistake; without hardware evidence nothing is certain."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault of a job.

    Args:
        kind: class of the fault.
        detected_at: record clock of the newest record that the verdict used.
        since: record clock at the start of the first window that showed it.
        until: record clock when it was seen for the last time, None while it goes on.
        ranks: best first, as numbered when it was detected.
        nodes: node names of these ranks.
        stage: heavy pipeline stage, -1 where none.
        lost_fraction: share of the step time when it was detected.
        confidence: 0 to 1.
        observed: what the culprit showed.
        expected: what it should have shown.
    """

    kind: FaultClass
    detected_at: float
    since: float
    until: float | None
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    stage: int
    lost_fraction: float
    confidence: float
    observed: float
    expected: float


@dataclass(frozen=True, slots=True)
class Moment:
    """When an evaluation takes place: clock of its newest record, and of its oldest."""

    now: float
    window: float


def _needed(winner: Candidate) -> int:
    """Return the evaluations that a cause must win; stalls were already counted one by one."""
    plain = winner.cost >= PLAIN_COST or winner.kind == "host_transient"
    return HOLDS_IF_PLAIN if plain else HOLDS


class Ledger:
    """The incidents of a job, at most one open at a time."""

    __slots__ = ("_absent", "_idle", "_other", "_rival", "_seen", "_since", "_streak", "incidents")

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self._streak: tuple[FaultClass | None, int] = (None, 0)
        self._since = self._seen = 0.0
        self._rival: tuple[FaultClass | None, int] = (None, 0)
        self._absent = 0
        self._idle = COOL_DOWN + 1
        self._other = 0.0

    @property
    def open(self) -> Incident | None:
        """Return the incident that goes on."""
        last = self.incidents[-1] if self.incidents else None
        return last if last and last.until is None else None

    def take(
        self,
        winner: Candidate | None,
        kinds: frozenset[str],
        moment: Moment,
        nodes: tuple[str, ...],
    ) -> None:
        """Take the winner of an evaluation and the classes of all its candidates."""
        self._count(winner, moment)
        going = self.open
        if going is None:
            self._idle += 1
            if winner and self._streak[1] >= _needed(winner):
                self._start(winner, moment, nodes)
            return
        if going.kind in kinds:
            self._absent, self._seen = 0, moment.now
        else:
            self._absent += 1
        if self._absent >= ENDS:
            self.incidents[-1] = replace(going, until=self._seen)
            self._idle = self._absent = 0
        elif winner and winner.kind != going.kind and self._streak[1] >= CHANGES:
            self.incidents[-1] = replace(going, until=moment.now)
            self._idle = COOL_DOWN + 1
            self._start(winner, moment, nodes)

    def confirmed(self, found: Candidate, moment: Moment, nodes: tuple[str, ...]) -> None:
        """Take a cause that needs no further confirmation."""
        known = any(
            i.kind == found.kind and i.ranks[:1] == found.ranks[:1] for i in self.incidents[-2:]
        )
        if not known:
            self._open(found, moment, nodes)

    def _count(self, winner: Candidate | None, moment: Moment) -> None:
        kind = winner.kind if winner else None
        if kind and kind == self._streak[0]:
            self._streak = (kind, self._streak[1] + 1)
        else:
            self._streak = (kind, int(kind is not None))
            self._since = moment.window

    def _start(self, found: Candidate, moment: Moment, nodes: tuple[str, ...]) -> None:
        last = self.incidents[-1] if self.incidents else None
        if last and last.kind == found.kind and self._idle <= COOL_DOWN:
            self.incidents[-1] = replace(last, until=None)
        else:
            self._open(found, moment, nodes)
        self._absent, self._seen = 0, moment.now

    def _open(self, found: Candidate, moment: Moment, nodes: tuple[str, ...]) -> None:
        sure = min(1.0, BASE_CONFIDENCE + found.cost) * TIMING_ALONE * found.certainty
        self.incidents.append(
            Incident(
                found.kind, moment.now, self._since or moment.window, None, found.ranks, nodes,
                found.stage, min(max(found.cost, 0.0), 1.0), sure, found.observed, found.expected,
            )
        )  # fmt: skip
