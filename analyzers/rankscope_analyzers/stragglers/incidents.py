"""The incidents of a job, one per fault: a cause that returns soon reopens its incident."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.stragglers.culprit_changes import (
    Places,
    have_common_place,
    is_same_node,
)
from rankscope_analyzers.stragglers.view import Candidate, SampleImbalance

COOL_DOWN = 15
"""Evaluations after its end during which the same cause reopens an incident."""

KEPT_INCIDENTS = 128
"""If a job has more, those that ended first are merged with later ones of the same cause or
dropped: a cause that comes and goes all week is one fault, and noise is none."""

BASE_CONFIDENCE, TIMING_ALONE = 0.5, 0.8
"""A costlier fault is harder to mistake; without hardware evidence nothing is certain."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault of a job.

    Args:
        kind: class of the fault.
        detected_at: record clock of the newest record that the verdict used.
        since: record clock at the start of the first window that showed it.
        until: record clock when it was last seen, None while it lasts.
        ranks: most certain first, as numbered when it was detected. If others join or some recover,
            it ends, and another incident continues it.
        nodes: node names of these ranks.
        stage: heavy pipeline stage, -1 for none.
        lost_fraction: share of the step time when it was detected.
        confidence: 0 to 1.
        observed: value of the culprit.
        expected: value that it should have had.
        stages: compute of each pipeline stage, if the class is about them.
        shown_by: what shows it, as in its candidate.
        sample_imbalance: how unevenly samples are distributed, likewise.
        slower: number of ranks that compute longer than before, and of those known, when last seen.
        cost: mean share of the step time over the evaluations from the first to the last that saw
            it.
        earlier: number of earlier incidents of the same cause that were merged into it.
        lasted_earlier: seconds that these lasted.
        lost_earlier: seconds that every rank lost in them.
        began_earlier: record clock at which the first of them began, infinite if none.
        continues: True if it is no new episode: another incident went on with other ranks.
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
    sample_imbalance: SampleImbalance | None = None
    cost: float = 0.0
    earlier: int = 0
    lasted_earlier: float = 0.0
    lost_earlier: float = 0.0
    began_earlier: float = np.inf
    continues: bool = False
    slower: tuple[int, int] = (0, 0)

    @property
    def places(self) -> Places:
        """Return the node of each of its ranks."""
        return dict(zip(self.ranks, self.nodes, strict=True))

    @property
    def episodes(self) -> int:
        """Return how many episodes it stands for."""
        return self.earlier + (not self.continues)

    def merged_with(self, other: Incident) -> Incident:
        """Return the incident with an earlier one merged into it."""
        lasted = max((other.until or other.since) - other.since, 0.0)
        continues = self.continues and other.continues
        return replace(
            self,
            continues=continues,
            earlier=self.episodes + other.episodes - (not continues),
            lasted_earlier=self.lasted_earlier + lasted + other.lasted_earlier,
            lost_earlier=self.lost_earlier + other.cost * lasted + other.lost_earlier,
            began_earlier=min(self.began_earlier, other.since, other.began_earlier),
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of an evaluation.

    Args:
        now: clock of its newest record.
        window: of its oldest.
        clocks: of all steps of its window.
        step_seconds: mean of the newest steps, 0 if unknown.
    """

    now: float
    window: float
    clocks: tuple[float, ...] = ()
    step_seconds: float = 0.0

    def began(self, candidate: Candidate) -> float:
        """Return when a candidate's first slow step of the window began."""
        before = candidate.began - 1
        return self.clocks[before] if 0 <= before < len(self.clocks) else self.window

    def ended(self, candidate: Candidate) -> float:
        """Return when its last slow step ended."""
        return self.clocks[candidate.ended] if 0 <= candidate.ended < len(self.clocks) else self.now


def same_culprit(one: Incident | Candidate, other: Incident | Candidate) -> bool:
    """Return True if two diagnoses of a class may have one cause: a stage, or any common rank.

    A diagnosis without ranks matches one with ranks: more becomes known as time passes.
    """
    if one.stage != other.stage:
        return min(one.stage, other.stage) < 0
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)


def same_fault(one: Incident, other: Incident) -> bool:
    """Return True if two incidents are episodes of one fault: of one class and one culprit.

    A rank that runs on another node is another culprit. An incident that goes on with other ranks
    is the same fault, even if its ranks were unknown before.
    """
    if one.kind != other.kind or not same_culprit(one, other):
        return False
    if one.ranks and other.ranks:
        return have_common_place(one.places, other.places)
    goes_on = other.continues and one.until == other.since
    return goes_on or bool(one.ranks) == bool(other.ranks)


def may_be_same_culprit(known: Incident, candidate: Candidate, nodes: tuple[str, ...]) -> bool:
    """Return True if a candidate may have the cause of an incident, in the same place.

    Args:
        known: the incident.
        candidate: of its class.
        nodes: node names of the candidate's ranks.
    """
    if not same_culprit(known, candidate):
        return False
    places = dict(zip(candidate.ranks, nodes, strict=True))
    return not known.ranks or not places or have_common_place(known.places, places)


def has_moved(known: Incident, nodes: Callable[[tuple[int, ...]], tuple[str, ...]]) -> bool:
    """Return True if an incident names ranks, and all of them run on other nodes by now."""
    if not known.ranks:
        return False
    pairs = zip(known.nodes, nodes(known.ranks), strict=True)
    return not any(is_same_node(before, now) for before, now in pairs)


def _may_return(known: Incident, candidate: Candidate, nodes: tuple[str, ...]) -> bool:
    """Return True if a cause may be that of an incident that ended, with its first rank again."""
    first = not known.ranks or not candidate.ranks or known.ranks[0] in candidate.ranks
    return first and may_be_same_culprit(known, candidate, nodes)


def _has_same_first(candidate: Candidate, known: Incident) -> bool:
    """Return True if a candidate's values are of the rank that is named first, or of its node."""
    if not candidate.ranks or not known.ranks:
        return same_culprit(candidate, known)
    places = known.places
    return candidate.stage == known.stage and places.get(candidate.ranks[0]) == known.nodes[0]


def _share(candidate: Candidate) -> float:
    return min(max(candidate.cost, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class _Account:
    """What the cost of an incident is the mean of.

    A fault that comes and goes is not seen by every evaluation, and neither is one that a check
    hardly notices: what it cost meanwhile shows in how long steps took.

    Args:
        evaluations: number of them up to the last one that saw it.
        last: the last one that saw it.
        ideal_seconds: how long a step would have taken then without the fault.
        peak: greatest share of the step time, of evaluations with its values.
        unseen: number of evaluations since.
        unseen_share: sum of the shares in these.
    """

    evaluations: int
    last: int
    ideal_seconds: float
    peak: float
    unseen: int = 0
    unseen_share: float = 0.0

    def with_unseen(self, step_seconds: float, cost: float) -> _Account:
        """Return the account with an evaluation that did not see the incident.

        Args:
            step_seconds: mean of its steps.
            cost: of the incident so far, which it cannot exceed.
        """
        beyond = 1.0 - self.ideal_seconds / step_seconds if step_seconds > 0 else 0.0
        share = self.unseen_share + min(max(beyond, 0.0), cost)
        return replace(self, unseen=self.unseen + 1, unseen_share=share)


class IncidentStore:
    """Stores the incidents of a job in order of detection, and which have ended; bounded.

    Open incidents are referred to by number.
    """

    __slots__ = ("_accounts", "_closed", "_ended", "_evaluations", "_incidents", "_next")

    def __init__(self) -> None:
        self._incidents: dict[int, Incident] = {}
        self._next = 0
        self._ended: dict[int, int] = {}
        self._closed: deque[int] = deque()
        self._evaluations = 0
        self._accounts: dict[int, _Account] = {}

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Return the stored incidents, in order of detection."""
        return tuple(self._incidents.values())

    def __getitem__(self, number: int) -> Incident:
        """Return an open incident."""
        return self._incidents[number]

    def next_evaluation(self) -> None:
        """Count an evaluation; incidents that ended long ago can no longer be reopened."""
        self._evaluations += 1
        for number, when in list(self._ended.items()):
            if self._evaluations - when > COOL_DOWN:
                self._end_for_good(number)

    def open(
        self, candidate: Candidate, since: float, moment: Moment, nodes: tuple[str, ...]
    ) -> int:
        """Open or reopen the incident of a cause; return its number."""
        for number in self._ended:
            known = self._incidents[number]
            if known.kind == candidate.kind and _may_return(known, candidate, nodes):
                del self._ended[number]
                self._incidents[number] = replace(known, until=None)
                self.update(number, candidate, moment)
                return number
        return self._add(candidate, since, moment, nodes)

    def record(
        self, candidate: Candidate, since: float, moment: Moment, nodes: tuple[str, ...]
    ) -> None:
        """Store an incident that is over when it is known, apart from those before and after it."""
        self.close(self._add(candidate, since, moment, nodes), moment.now, for_good=True)

    def go_on(
        self, number: int, candidate: Candidate, moment: Moment, nodes: tuple[str, ...]
    ) -> int:
        """End an incident that goes on with other ranks; return the number of its continuation."""
        since = max(moment.window, self._incidents[number].since)
        self.close(number, since, for_good=True)
        number = self._add(candidate, since, moment, nodes)
        self._incidents[number] = replace(self._incidents[number], continues=True)
        return number

    def _add(
        self, candidate: Candidate, since: float, moment: Moment, nodes: tuple[str, ...]
    ) -> int:
        sure = min(1.0, BASE_CONFIDENCE + candidate.cost) * TIMING_ALONE * candidate.certainty
        cost = _share(candidate)
        number, self._next = self._next, self._next + 1
        ideal = moment.step_seconds * (1.0 - cost)
        self._accounts[number] = _Account(1, self._evaluations, ideal, 0.0)
        self._incidents[number] = Incident(
            candidate.kind, moment.now, since, None, candidate.ranks, nodes, candidate.stage,
            cost, sure, candidate.observed, candidate.expected, candidate.stages,
            candidate.shown_by, candidate.sample_imbalance, cost, slower=candidate.slower,
        )  # fmt: skip
        return number

    def end_evaluation(self, moment: Moment) -> None:
        """Estimate what incidents cost that the evaluation did not see."""
        for number, account in self._accounts.items():
            if account.last < self._evaluations:
                cost = self._incidents[number].cost
                self._accounts[number] = account.with_unseen(moment.step_seconds, cost)

    def update(self, number: int, candidate: Candidate, moment: Moment) -> None:
        """Update the cost of an incident by one more evaluation, and by those that missed it."""
        before, known = self._accounts[number], self._incidents[number]
        share, count = _share(candidate), before.evaluations + before.unseen + 1
        lost = known.cost * before.evaluations + before.unseen_share + share
        ideal = moment.step_seconds * (1.0 - share)
        alike = candidate.shown_by == known.shown_by and _has_same_first(candidate, known)
        peak = max(before.peak, share) if alike else before.peak
        self._accounts[number] = _Account(count, self._evaluations, ideal, peak)
        slower = candidate.slower if alike else known.slower
        known = replace(known, cost=lost / count, slower=slower)
        if alike and share > before.peak:
            known = replace(
                known,
                observed=candidate.observed,
                expected=candidate.expected,
                stages=candidate.stages,
                sample_imbalance=candidate.sample_imbalance,
            )
        self._incidents[number] = known

    def close(self, number: int, until: float, *, for_good: bool = False) -> None:
        """End an incident; it is reopened if its cause returns soon, unless `for_good`."""
        self._incidents[number] = replace(self._incidents[number], until=until)
        self._ended[number] = self._evaluations
        if for_good:
            self._end_for_good(number)
        else:
            while len(self._ended) > KEPT_INCIDENTS // 2:
                self._end_for_good(next(iter(self._ended)))

    def _end_for_good(self, number: int) -> None:
        del self._ended[number]
        self._accounts.pop(number, None)
        self._closed.append(number)
        while len(self._incidents) > KEPT_INCIDENTS and self._closed:
            self._merge_into_next(self._closed.popleft())

    def _merge_into_next(self, number: int) -> None:
        """Merge an incident that is over into the next one of the same fault."""
        ended = self._incidents.pop(number)
        for other, known in self._incidents.items():
            if known.kind == ended.kind and other > number and same_fault(ended, known):
                self._incidents[other] = known.merged_with(ended)
                return
