"""The incidents of a job, one per fault: a cause that comes back soon goes on as the same one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.stragglers.view import Candidate, Dealt

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
        shown_by: what shows it, as of its candidate.
        dealt: how unevenly samples are dealt, likewise.
        cost: mean share of the step time over the evaluations that saw it.
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
    shown_by: str = ""
    dealt: Dealt | None = None
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """When an evaluation takes place.

    Args:
        now: clock of its newest record.
        window: of its oldest.
        clocks: of all steps of its window.
    """

    now: float
    window: float
    clocks: tuple[float, ...] = ()

    def began(self, found: Candidate) -> float:
        """Return when a candidate's first slow step of the window began."""
        before = found.began - 1
        return self.clocks[before] if 0 <= before < len(self.clocks) else self.window

    def ended(self, found: Candidate) -> float:
        """Return when its last slow step ended."""
        return self.clocks[found.ended] if 0 <= found.ended < len(self.clocks) else self.now


def same_culprit(one: Incident | Candidate, other: Incident | Candidate) -> bool:
    """Say whether two diagnoses of a class may be about one cause: a stage, or any common rank.

    One that names nobody is about the same cause as one that does: with time more is known.
    """
    if one.stage != other.stage:
        return min(one.stage, other.stage) < 0
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)


def _share(found: Candidate) -> float:
    return min(max(found.cost, 0.0), 1.0)


class Book:
    """The incidents of a job in order of detection, and which of them are over."""

    __slots__ = ("_ended", "_evaluations", "_seen", "incidents")

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self._ended: dict[int, int] = {}
        self._evaluations = 0
        self._seen: dict[int, tuple[int, float]] = {}

    def tick(self) -> None:
        """Count an evaluation; incidents that ended long ago stay closed for good."""
        self._evaluations += 1
        self._ended = {
            number: when
            for number, when in self._ended.items()
            if self._evaluations - when <= COOL_DOWN
        }

    def open(self, found: Candidate, since: float, moment: Moment, nodes: tuple[str, ...]) -> int:
        """Return the number of the incident of a cause: one that just ended, or a new one."""
        for number in self._ended:
            known = self.incidents[number]
            if known.kind == found.kind and same_culprit(known, found):
                del self._ended[number]
                self.incidents[number] = replace(known, until=None)
                return number
        sure = min(1.0, BASE_CONFIDENCE + found.cost) * TIMING_ALONE * found.certainty
        cost = _share(found)
        self.incidents.append(
            Incident(
                found.kind, moment.now, since, None, found.ranks, nodes, found.stage,
                cost, sure, found.observed, found.expected, found.stages,
                found.shown_by, found.dealt, cost,
            )
        )  # fmt: skip
        return len(self.incidents) - 1

    def see(self, number: int, found: Candidate) -> None:
        """Take what an incident costs at one more evaluation."""
        count, peak = self._seen.get(number, (1, 0.0))
        known = self.incidents[number]
        share = _share(found)
        mean = (known.cost * count + share) / (count + 1)
        self._seen[number] = count + 1, max(peak, share)
        known = replace(known, cost=mean)
        if share > peak and found.shown_by == known.shown_by and same_culprit(found, known):
            known = replace(
                known, observed=found.observed, expected=found.expected, stages=found.stages,
                dealt=found.dealt,
            )  # fmt: skip
        self.incidents[number] = known

    def close(self, number: int, until: float, *, for_good: bool = False) -> None:
        """End an incident; it goes on if its cause comes back soon, unless it is over for good."""
        self.incidents[number] = replace(self.incidents[number], until=until)
        if not for_good:
            self._ended[number] = self._evaluations
