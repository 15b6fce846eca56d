"""The incident of slow checkpoints: at most one is open, of one writer's node or of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rankscope_analyzers.stragglers.culprit_changes import Places, have_common_place
from rankscope_analyzers.stragglers.incidents import Incident, IncidentStore, Moment, has_moved
from rankscope_analyzers.stragglers.view import Candidate


class SlowCheckpoints:
    """Opens the incident, lets it go on with other writers, and closes it."""

    __slots__ = ("_number", "_other", "_store", "_until")

    def __init__(self, store: IncidentStore) -> None:
        self._store = store
        self._number: int | None = None
        self._other: tuple[Places, float] | None = None
        self._until = 0.0

    def open(self, candidate: Candidate, moment: Moment, nodes: tuple[str, ...]) -> None:
        """Record slow checkpoints, and who writes them slowly now.

        Args:
            candidate: with the ranks of the slow writer's node, or none if all are slow.
            moment: of the newest checkpoint; its window holds the slow ones.
            nodes: node names of the ranks.
        """
        self._until = moment.now
        if self._number is None:
            self._number = self._store.open(candidate, moment.window, moment, nodes)
        else:
            self._number = self._followed(self._number, candidate, moment, nodes)

    def _followed(
        self, number: int, candidate: Candidate, moment: Moment, nodes: tuple[str, ...]
    ) -> int:
        """Return the incident that is open from now on: another if two in a row show others.

        The first one that does may hold checkpoints of both, which together look like those of all.
        """
        known, before = self._store[number], self._other
        places: Places = dict(zip(candidate.ranks, nodes, strict=True))
        if _are_same(known.places, places):
            self._other = None
            return number
        if before is None or not _are_same(before[0], places):
            self._other = (places, moment.window)
            return number
        self._other = None
        return self._replaced(number, known, candidate, replace(moment, window=before[1]), nodes)

    def _replaced(
        self,
        number: int,
        known: Incident,
        candidate: Candidate,
        moment: Moment,
        nodes: tuple[str, ...],
    ) -> int:
        if not known.ranks or not candidate.ranks:
            return self._store.go_on(number, candidate, moment, nodes)
        since = max(moment.window, known.since)
        self._store.close(number, since, for_good=True)
        return self._store.open(candidate, since, moment, nodes)

    def close(self) -> None:
        """Record a checkpoint that was written in the usual time."""
        if self._number is not None:
            self._store.close(self._number, self._until, for_good=True)
        self._number = self._other = None

    def end_moved(self, nodes: Callable[[tuple[int, ...]], tuple[str, ...]]) -> None:
        """End the incident of a writer that a restart has moved to another node.

        Args:
            nodes: returns the names of the nodes on which some ranks run from now on.
        """
        if self._number is not None and has_moved(self._store[self._number], nodes):
            self.close()


def _are_same(one: Places, other: Places) -> bool:
    """Return True if both are all writers, or the same one."""
    return have_common_place(one, other) if one and other else bool(one) == bool(other)
