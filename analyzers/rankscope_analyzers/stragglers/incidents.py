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

CULPRIT_CHANGES = 4
"""Evaluations in a row, together a window, before other ranks replace those that were found: then
the window holds nothing of the time of the former ones."""

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
        stages: compute of each pipeline stage, where the class is about them.
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
    stages: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """When an evaluation takes place: clock of its newest record, and of its oldest."""

    now: float
    window: float


def _needed(winner: Candidate) -> int:
    """Return the evaluations that a cause must win; stalls were already counted one by one."""
    plain = winner.cost >= PLAIN_COST or winner.kind == "host_transient"
    return HOLDS_IF_PLAIN if plain else HOLDS


def same_culprit(one: Incident | Candidate, other: Incident | Candidate) -> bool:
    """Say whether two diagnoses of a class may be about one cause: a stage, or any common rank.

    One that names nobody is about the same cause as one that does: with time more is known.
    """
    if one.stage != other.stage:
        return min(one.stage, other.stage) < 0
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)


class Ledger:
    """The incidents of a job: at most one of slow steps is open, and one of slow checkpoints."""

    __slots__ = (
        "_absent",
        "_idle",
        "_last",
        "_others",
        "_running",
        "_seen",
        "_streak",
        "_writing",
        "incidents",
    )

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self._streak: tuple[FaultClass | None, int, float] = (None, 0, 0.0)
        self._last: int | None = None
        self._running = False
        self._writing: int | None = None
        self._seen = 0.0
        self._absent = 0
        self._others = 0
        self._idle = COOL_DOWN + 1

    @property
    def open(self) -> Incident | None:
        """Return the incident of slow steps that goes on."""
        running = self._running and self._last is not None
        return self.incidents[self._last or 0] if running else None

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
                self._start(winner, self._streak[2], moment, nodes)
            return
        present = going.kind in kinds
        moved = winner is not None and winner.kind == going.kind
        moved = moved and winner is not None and not same_culprit(winner, going)
        self._others = self._others + 1 if moved else 0
        self._absent = 0 if present else self._absent + 1
        self._seen = moment.now if present else self._seen
        if self._absent >= ENDS:
            self._close(self._seen)
            self._idle = 0
        elif winner and self._others >= CULPRIT_CHANGES:
            self._close(moment.window)
            self._start(winner, moment.window, moment, nodes)
        elif winner and winner.kind != going.kind and self._streak[1] >= CHANGES:
            self._close(moment.now)
            self._idle = COOL_DOWN + 1
            self._start(winner, self._streak[2], moment, nodes)

    def slow_checkpoint(self, found: Candidate, moment: Moment, nodes: tuple[str, ...]) -> None:
        """Take slow checkpoints; several in a row need no further confirmation."""
        if self._writing is None:
            self._writing = len(self.incidents)
            self._open(found, moment.window, moment, nodes)

    def good_checkpoint(self, now: float) -> None:
        """Take a checkpoint that was written in the usual time."""
        if self._writing is not None:
            self.incidents[self._writing] = replace(self.incidents[self._writing], until=now)
            self._writing = None

    def _count(self, winner: Candidate | None, moment: Moment) -> None:
        kind, streak, since = self._streak
        if winner and winner.kind == kind:
            self._streak = (kind, streak + 1, since)
        else:
            self._streak = (winner.kind if winner else None, int(bool(winner)), moment.window)

    def _start(
        self, found: Candidate, since: float, moment: Moment, nodes: tuple[str, ...]
    ) -> None:
        last = self.incidents[self._last] if self._last is not None else None
        again = last and last.kind == found.kind and same_culprit(last, found)
        if again and last and self._last is not None and self._idle <= COOL_DOWN:
            self.incidents[self._last] = replace(last, until=None)
        else:
            self._last = len(self.incidents)
            self._open(found, since, moment, nodes)
        self._running = True
        self._absent, self._others, self._seen = 0, 0, moment.now

    def _close(self, until: float) -> None:
        if self._last is not None:
            self.incidents[self._last] = replace(self.incidents[self._last], until=until)
        self._running, self._absent = False, 0

    def _open(self, found: Candidate, since: float, moment: Moment, nodes: tuple[str, ...]) -> None:
        sure = min(1.0, BASE_CONFIDENCE + found.cost) * TIMING_ALONE * found.certainty
        self.incidents.append(
            Incident(
                found.kind, moment.now, since, None, found.ranks, nodes, found.stage,
                min(max(found.cost, 0.0), 1.0), sure, found.observed, found.expected, found.stages,
            )
        )  # fmt: skip
