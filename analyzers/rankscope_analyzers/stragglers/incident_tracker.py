"""Which incidents are open: a cause opens one when it persists and closes it when it ends.

Two causes can be open at a time if the second is measured separately from the first, and slow
checkpoints in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.stragglers.cause_selection import are_independent, leading_cause
from rankscope_analyzers.stragglers.culprit_changes import (
    CULPRIT_CHANGES,
    LINK_CHANGES,
    CulpritChanges,
    Places,
    have_common_place,
)
from rankscope_analyzers.stragglers.incidents import (
    Incident,
    IncidentStore,
    Moment,
    has_moved,
    may_be_same_culprit,
    same_culprit,
)
from rankscope_analyzers.stragglers.shape import Contents
from rankscope_analyzers.stragglers.slow_checkpoints import SlowCheckpoints
from rankscope_analyzers.stragglers.state import forked
from rankscope_analyzers.stragglers.view import Candidate

HOLDS = 3
"""Consecutive evaluations that a cause must win before it opens an incident."""

HOLDS_IF_PLAIN = 2
"""The same for a cause that is hard to mistake."""

PLAIN_COST = 0.06
"""Share of the step that is hard to mistake: more than twice what the checks require."""

HOLDS_BESIDE = 6
"""The same for a second cause, one and a half windows: side effects of the first one's beginning or
end have left the window by then."""

CHANGES = 10
"""Consecutive evaluations before another cause replaces the one that was found."""

ENDS = 6
"""Consecutive evaluations without the cause before its incident is closed."""

HELD_SECONDS = 5.0
"""Seconds that a cause must persist, too: a busy operating system explains shorter ones."""

HELD_SECONDS_BY_ALL = 30.0
"""The same if all ranks are slow: housekeeping of a node slows all of them for less."""

OF_ALL: frozenset[FaultClass] = frozenset({"global_slowdown", "storage_checkpoint"})
"""Classes in which all ranks are slow together."""

HELD_SHARE = 0.6
"""Share of the observed time that is enough in short jobs."""

ALL_OR_MOST = frozenset({"", "most"})
"""How a slowdown shows, by the share of the ranks that are slower."""

NEVER_SOONER = frozenset({"cpu_wait"})
"""Not in short jobs: on a crowded node the scheduler lets one of two ranks wait for a second or
two, and then the other one."""

Nodes = Callable[[Candidate], tuple[str, ...]]
"""Returns the names of the nodes of a candidate's ranks."""


Silent = Callable[[int], bool]
"""Returns True if a rank reports nothing at the moment."""


class _Slot:
    """At most one open incident: that of the cause that wins one evaluation after another."""

    __slots__ = (
        "_absent", "_changes", "_others", "_otherwise", "_seen", "_store", "_streak", "number",
    )  # fmt: skip

    def __init__(self, store: IncidentStore) -> None:
        self._store = store
        self.number: int | None = None
        self._streak: tuple[Candidate | None, int, float] = (None, 0, 0.0)
        self._seen = 0.0
        self._absent = 0
        self._others = self._otherwise = 0
        self._changes = CulpritChanges()

    @property
    def current(self) -> Incident | None:
        """Return the open incident."""
        return None if self.number is None else self._store[self.number]

    @property
    def pending(self) -> tuple[Candidate | None, float]:
        """Return a cause that won often enough but not for long enough yet, and its start."""
        winner, streak, since = self._streak
        return (winner if winner and streak >= _required_evaluations(winner) else None), since

    def update(
        self,
        winner: Candidate | None,
        kinds: Mapping[FaultClass, Candidate],
        moment: Moment,
        nodes: Nodes,
        is_silent: Silent,
        holds: int | None = None,
    ) -> None:
        """Process the winner of an evaluation and the classes of all its candidates.

        Args:
            winner: None if nothing is wrong.
            kinds: the costliest candidate of each class.
            moment: of the evaluation.
            nodes: returns the names of the winner's nodes.
            is_silent: returns True if a rank reports nothing.
            holds: consecutive evaluations that a cause must win, None if that depends on the cause.
        """
        self._count(winner, moment)
        current = self.current
        if current is None:
            if winner and self._has_held(winner, moment, holds):
                self._start(winner, self._began(winner, moment), moment, nodes)
            return
        self._follow(current, winner, kinds, moment, nodes)
        if self.number is None or winner is None:
            return
        if self._others >= CULPRIT_CHANGES:
            self._replace(winner, moment, nodes)
        elif winner.kind == current.kind and winner.ranks:
            self._change_ranks(current, winner, moment, nodes, is_silent)
        elif winner.kind == current.kind:
            self._change_extent(current, winner, moment)
        elif winner.kind != current.kind and self._streak[1] >= CHANGES:
            self._close(moment.now, for_good=True)
            self._start(winner, self._began(winner, moment), moment, nodes)

    def _replace(self, winner: Candidate, moment: Moment, nodes: Nodes) -> None:
        """End the incident; begin another one if one and the same culprit replaced it."""
        self._close(moment.window)
        if self._streak[1] >= CULPRIT_CHANGES:
            self._start(winner, moment.window, moment, nodes)

    def _change_ranks(
        self,
        current: Incident,
        winner: Candidate,
        moment: Moment,
        nodes: Nodes,
        is_silent: Silent,
    ) -> None:
        """Let the ranks that recovered leave the incident, and those that became slow join it."""
        seen: Places = dict(zip(winner.ranks, nodes(winner), strict=True))
        worse = _excess(winner) / max(_excess(current), TINY)
        ranks = self._changes.add(current.places, seen, worse, is_silent)
        if ranks is None or self.number is None:
            return
        known = {rank: seen.get(rank, current.places.get(rank, "")) for rank in ranks}
        if not known:
            self._close(moment.window)
        elif current.ranks and not have_common_place(current.places, known):
            self._replace(winner, moment, nodes)
        else:
            changed = _with_ranks(winner, current, ranks)
            self.number = self._store.go_on(self.number, changed, moment, tuple(known.values()))
            self._changes = _changes_of(current.kind)

    def _change_extent(self, current: Incident, winner: Candidate, moment: Moment) -> None:
        """Let a slowdown of most ranks go on as one of all ranks, or the other way round."""
        differs = {current.shown_by, winner.shown_by} == ALL_OR_MOST and any(winner.slower)
        self._otherwise = self._otherwise + 1 if differs else 0
        if self._otherwise >= CULPRIT_CHANGES and self.number is not None:
            self.number = self._store.go_on(self.number, winner, moment, ())
            self._otherwise = 0

    def _has_held(self, winner: Candidate, moment: Moment, holds: int | None) -> bool:
        """Return True if a cause has won often enough and for long enough."""
        lasted = moment.now - self._streak[2]
        return self._streak[1] >= (
            holds or _required_evaluations(winner)
        ) and lasted >= _required_seconds(winner)

    def _follow(
        self,
        current: Incident,
        winner: Candidate | None,
        kinds: Mapping[FaultClass, Candidate],
        moment: Moment,
        nodes: Nodes,
    ) -> None:
        """Count for how long the cause has been gone, or another culprit has replaced it."""
        moved = (
            winner is not None
            and winner.kind == current.kind
            and not may_be_same_culprit(current, winner, nodes(winner))
        )
        self._others = self._others + 1 if moved else 0
        if current.kind in kinds and self.number is not None:
            self._absent, self._seen = 0, moment.ended(kinds[current.kind])
            self._store.update(self.number, kinds[current.kind], moment)
        else:
            self._absent += 1
        if self._absent >= ENDS:
            self._close(self._seen)

    def _count(self, winner: Candidate | None, moment: Moment) -> None:
        before, streak, since = self._streak
        same = winner and before and winner.kind == before.kind and same_culprit(winner, before)
        self._streak = (winner, streak + 1, since) if same else (winner, 1, _since(winner, moment))

    def _began(self, winner: Candidate, moment: Moment) -> float:
        """Return when the cause that wins began; of stalls, the first may be before the window."""
        since = self._streak[2]
        if winner.began >= 0:
            return since
        return min(since, moment.window + winner.began * moment.step_seconds)

    def _start(self, candidate: Candidate, since: float, moment: Moment, nodes: Nodes) -> None:
        self.number = self._store.open(candidate, since, moment, nodes(candidate))
        self._absent = self._others = self._otherwise = 0
        self._seen = moment.now
        self._changes = _changes_of(candidate.kind)

    def end_moved(self, nodes: Callable[[tuple[int, ...]], tuple[str, ...]]) -> None:
        """End the incident of ranks that a restart has moved to other nodes, if all of them have.

        Args:
            nodes: returns the names of the nodes on which some ranks run from now on.
        """
        self._streak = (None, 0, 0.0)
        current = self.current
        if current is not None and has_moved(current, nodes):
            self._close(self._seen, for_good=True)

    def _close(self, until: float, *, for_good: bool = False) -> None:
        if self.number is not None:
            self._store.close(self.number, until, for_good=for_good)
        self.number, self._absent = None, 0


class IncidentTracker:
    """Tracks a job's incidents: at most two of slow steps are open, one of slow checkpoints."""

    __slots__ = ("_first", "_second", "_slow_checkpoints", "_store")

    def __init__(self) -> None:
        self._store = IncidentStore()
        self._first = _Slot(self._store)
        self._second = _Slot(self._store)
        self._slow_checkpoints = SlowCheckpoints(self._store)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Return all incidents, in order of detection."""
        return self._store.incidents

    @property
    def open(self) -> Incident | None:
        """Return the open incident of slow steps, the first of them if there are two."""
        return self._first.current

    def update(
        self,
        candidates: Sequence[Candidate],
        contents: Contents,
        moment: Moment,
        nodes: Nodes,
        is_silent: Silent = lambda _: False,
    ) -> None:
        """Process the candidates of an evaluation, in the order of the step.

        Args:
            candidates: all of them.
            contents: what compute contains.
            moment: of the evaluation.
            nodes: returns the names of a candidate's nodes.
            is_silent: returns True if a rank reports nothing: that it is missing is no evidence.
        """
        self._store.next_evaluation()
        kinds = {one.kind: one for one in sorted(candidates, key=lambda one: one.cost)}
        if self._first.current is None and self._second.current is not None:
            self._first, self._second = self._second, self._first
        known = self._second.current
        rest = [item for item in candidates if known is None or item.kind != known.kind]
        self._first.update(leading_cause(rest), kinds, moment, nodes, is_silent)
        first = self._first.current
        rest = [item for item in candidates if first and are_independent(first, item, contents)]
        self._second.update(leading_cause(rest), kinds, moment, nodes, is_silent, HOLDS_BESIDE)
        self._store.end_evaluation(moment)

    def latest_incidents(
        self, observed: float, moment: Moment, nodes: Nodes
    ) -> tuple[Incident, ...]:
        """Return the incidents as of the newest record; change nothing.

        In short runs a cause need not have persisted for as long as usual.

        Args:
            observed: seconds of the newest run that could be judged.
            moment: of the last evaluation.
            nodes: returns the names of a candidate's nodes.
        """
        winner, since = self._first.pending
        if self._first.current is not None or winner is None or winner.shown_by in NEVER_SOONER:
            return self.incidents
        if moment.now - since < HELD_SHARE * observed:
            return self.incidents
        store: IncidentStore = forked(self._store)
        store.open(winner, since, moment, nodes(winner))
        return store.incidents

    def end_moved(self, nodes: Callable[[tuple[int, ...]], tuple[str, ...]]) -> None:
        """End the incidents of ranks that a restart has moved to other nodes.

        Args:
            nodes: returns the names of the nodes on which some ranks run from now on.
        """
        for slot in (self._first, self._second):
            slot.end_moved(nodes)
        self._slow_checkpoints.end_moved(nodes)

    def add_freeze(self, candidate: Candidate, moment: Moment, nodes: Nodes) -> None:
        """Record a single long pause of a rank: it is over when it is known."""
        self._store.record(candidate, moment.window, moment, nodes(candidate))

    def open_slow_checkpoint(self, candidate: Candidate, moment: Moment, nodes: Nodes) -> None:
        """Record slow checkpoints; several in a row need no further confirmation.

        They cost what each of them adds to the time since the one before, so that those that made
        it known count as well.
        """
        self._slow_checkpoints.open(candidate, moment, nodes(candidate))

    def close_slow_checkpoint(self) -> None:
        """Record a checkpoint that was written in the usual time."""
        self._slow_checkpoints.close()


TINY = 1e-12


def _changes_of(kind: FaultClass) -> CulpritChanges:
    return CulpritChanges(LINK_CHANGES if kind == "network_link" else CULPRIT_CHANGES)


def _excess(one: Incident | Candidate) -> float:
    return one.observed - one.expected


def _with_ranks(winner: Candidate, current: Incident, ranks: tuple[int, ...]) -> Candidate:
    """Return a candidate with some ranks; its values are those of the first of them."""
    if winner.ranks[0] == ranks[0]:
        return replace(winner, ranks=ranks)
    return replace(winner, ranks=ranks, observed=current.observed, expected=current.expected)


def _since(winner: Candidate | None, moment: Moment) -> float:
    return moment.began(winner) if winner else moment.window


def _required_seconds(winner: Candidate) -> float:
    """Return the seconds that a cause must persist."""
    everybody = winner.kind in OF_ALL and not winner.ranks
    return HELD_SECONDS_BY_ALL if everybody else HELD_SECONDS


def _required_evaluations(winner: Candidate) -> int:
    """Return the evaluations that a cause must win; stalls were already counted one by one."""
    plain = winner.cost >= PLAIN_COST or winner.kind == "host_transient"
    return HOLDS_IF_PLAIN if plain else HOLDS
