"""The incidents of a job, one per fault: a cause that comes back soon goes on as the same one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.stragglers.view import Candidate

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


def same_culprit(one: Incident | Candidate, other: Incident | Candidate) -> bool:
    """Say whether two diagnoses of a class may be about one cause: a stage, or any common rank.

    One that names nobody is about the same cause as one that does: with time more is known.
    """
    if one.stage != other.stage:
        return min(one.stage, other.stage) < 0
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)


class Book:
    """The incidents of a job in order of detection, and which of them are over."""

    __slots__ = ("_ended", "_evaluations", "incidents")

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self._ended: dict[int, int] = {}
        self._evaluations = 0

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
        self.incidents.append(
            Incident(
                found.kind, moment.now, since, None, found.ranks, nodes, found.stage,
                min(max(found.cost, 0.0), 1.0), sure, found.observed, found.expected, found.stages,
            )
        )  # fmt: skip
        return len(self.incidents) - 1

    def close(self, number: int, until: float, *, for_good: bool = False) -> None:
        """End an incident; it goes on if its cause comes back soon, unless it is over for good."""
        self.incidents[number] = replace(self.incidents[number], until=until)
        if not for_good:
            self._ended[number] = self._evaluations
