"""Stacks of a job's ranks, grouped by equality: the few that differ are suspects.

Most of the ranks that wait for each other are in the same collective. A rank that is elsewhere did
not arrive. Pure: from stacks to groups. If no stack is that of more than half of the ranks whose
stacks are known, none is suspected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.flight_dump import Frame

Stack = tuple[Frame, ...]
"""Innermost frame first."""


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks with the same stack.

    Args:
        stack: innermost first; empty for ranks that run no frame of Python.
        parting: the outermost frame in which they differ from the majority; None for the majority
            itself, without a majority, and if their stack ends before it differs.
        suspect: True if the majority is elsewhere.
    """

    ranks: tuple[int, ...]
    stack: Stack
    parting: Frame | None
    suspect: bool


@dataclass(frozen=True, slots=True)
class GroupedStacks:
    """The stacks of a job.

    Args:
        groups: suspects first, then the largest.
        silent: ranks of the job of which no stack is known.
    """

    groups: tuple[StackGroup, ...]
    silent: tuple[int, ...]


def group(stacks: Mapping[int, Sequence[Frame]], ranks: Collection[int] = ()) -> GroupedStacks:
    """Group ranks whose stacks are the same in every function, file and line.

    Args:
        stacks: by rank, innermost frame first.
        ranks: all of the job; those without a stack are named as silent.
    """
    together: dict[Stack, list[int]] = defaultdict(list)
    for rank in sorted(stacks):
        together[tuple(stacks[rank])].append(rank)
    majority = next((s for s, same in together.items() if 2 * len(same) > len(stacks)), None)
    groups = [_group(stack, same, majority) for stack, same in together.items()]
    groups.sort(key=lambda one: (not one.suspect, -len(one.ranks), one.ranks))
    return GroupedStacks(tuple(groups), tuple(sorted(set(ranks) - stacks.keys())))


def _group(stack: Stack, ranks: Sequence[int], majority: Stack | None) -> StackGroup:
    suspect = majority is not None and stack != majority
    parting = _parting(stack, majority) if suspect and majority is not None else None
    return StackGroup(tuple(ranks), stack, parting, suspect)


def _parting(stack: Stack, other: Stack) -> Frame | None:
    """Return the outermost frame of a stack that the other one lacks at that position."""
    for depth, frame in enumerate(reversed(stack)):
        if depth >= len(other) or other[len(other) - 1 - depth] != frame:
            return frame
    return None
