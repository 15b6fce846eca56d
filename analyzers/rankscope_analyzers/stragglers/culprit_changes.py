"""Which ranks recover from a fault, and which ones join it, while it lasts.

A rank counts at its place: one that a restart moved to another node is another culprit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

CULPRIT_CHANGES = 4
"""Consecutive evaluations, together a window, before the ranks of an incident change: then the
window contains no step from before."""

LINK_CHANGES = 10
"""The same for links, which are judged over `LONG_STEPS`: the ranks of a node share its links, and
take turns as the last ones."""

WORSE = 1.25
"""Times the excess of the rank that is named first, before one of another node is named first:
ranks that are equally slow take turns."""

UNKNOWN_NODE = "unknown"
"""Name of a node that never reported, or whose name is not remembered."""

Places = Mapping[int, str]
"""The node of each rank, the worst rank first."""


def is_same_node(one: str, other: str) -> bool:
    """Return True if two names may be of one node."""
    return one == other or UNKNOWN_NODE in (one, other)


def have_common_place(one: Places, other: Places) -> bool:
    """Return True if a rank is in both, on the same node."""
    return any(rank in other and is_same_node(node, other[rank]) for rank, node in one.items())


class CulpritChanges:
    """Counts for how many evaluations ranks have been missing, or new, in an open incident.

    Args:
        needed: consecutive evaluations before they leave it or join it.
    """

    __slots__ = ("_first", "_joining", "_leaving", "_needed")

    def __init__(self, needed: int = CULPRIT_CHANGES) -> None:
        self._needed = needed
        self._joining: dict[int, int] = {}
        self._leaving: dict[int, int] = {}
        self._first: tuple[int, int] = (-1, 0)

    def add(
        self, named: Places, seen: Places, worse: float, is_silent: Callable[[int], bool]
    ) -> tuple[int, ...] | None:
        """Add an evaluation; return the ranks of the fault from now on, None if none changed.

        Args:
            named: the ranks of the incident.
            seen: those that the evaluation found, at least one.
            worse: excess of the first of these, as a multiple of that of the first one named.
            is_silent: returns True if a rank reports nothing: that it is missing is no evidence.
        """
        stay = {
            rank for rank, node in named.items() if rank in seen and is_same_node(node, seen[rank])
        }
        joining, leaving = self._joining, self._leaving
        self._joining = {rank: joining.get(rank, 0) + 1 for rank in seen if rank not in stay}
        self._leaving = {
            rank: leaving.get(rank, 0) + 1
            for rank in named
            if rank not in stay and not is_silent(rank)
        }
        left, joined = self._due(self._leaving), self._due(self._joining)
        first = next(iter(seen))
        leads = first in stay and worse >= WORSE and not is_same_node(_first(named), seen[first])
        self._first = (
            first,
            self._first[1] + 1 if leads and first == self._first[0] else int(leads),
        )
        if not left and not joined and self._first[1] < self._needed:
            return None
        if not stay and 0 < len(self._leaving) != len(left):
            return None  # one fault is just replacing another
        now = (set(named) - left) | joined
        order = (*seen, *(rank for rank in named if rank not in seen))
        return tuple(rank for rank in order if rank in now)

    def _due(self, counts: Mapping[int, int]) -> set[int]:
        return {rank for rank, count in counts.items() if count >= self._needed}


def _first(places: Places) -> str:
    return next(iter(places.values()))
