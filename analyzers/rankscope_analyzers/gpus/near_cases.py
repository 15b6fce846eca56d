"""Finds cases that share a job or a node within some time: a fleet's incident has thousands."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rankscope_analyzers.gpus.xid_cases import Case

Place = tuple[str, str]
"""What cases share: a job or a node, and its name."""


def of_jobs(case: Case) -> list[Place]:
    """Return the jobs of a case."""
    return [("job", name) for name in sorted(case.jobs)]


def of_node(case: Case) -> Place:
    """Return the node of a case."""
    return "node", case.location.node


MOST = sys.maxsize
"""Larger than any number of a case."""


class NearCases:
    """Cases by place and time, each of which can be taken once.

    Args:
        cases: in an order of which their numbers are the positions.
        places: under which each is found.
    """

    def __init__(self, cases: Sequence[Case], places: Iterable[Iterable[Place]]) -> None:
        found: dict[Place, list[tuple[float, int]]] = defaultdict(list)
        for number, (case, names) in enumerate(zip(cases, places, strict=True)):
            for place in names:
                found[place].append((case.first, number))
        self._at: Mapping[Place, list[tuple[float, int]]] = found
        self._left = set(range(len(cases)))
        for entries in found.values():
            entries.sort()

    def take(self, numbers: Iterable[int]) -> None:
        """Take cases: they are no longer found."""
        self._left.difference_update(numbers)

    def has(self, number: int) -> bool:
        """Return True if a case was not taken."""
        return number in self._left

    def between(self, places: Iterable[Place], begin: float, end: float) -> list[int]:
        """Return the numbers of the cases that began in a time at any of these places, in order."""
        return sorted({number for place in places for number in self._within(place, begin, end)})

    def _within(self, place: Place, begin: float, end: float) -> list[int]:
        entries = self._at.get(place, [])
        first, last = bisect_left(entries, (begin, -1)), bisect_right(entries, (end, MOST))
        left = [number for _, number in entries[first:last] if number in self._left]
        if 2 * (last - first - len(left)) > len(entries):
            entries[:] = [one for one in entries if one[1] in self._left]
        return left
