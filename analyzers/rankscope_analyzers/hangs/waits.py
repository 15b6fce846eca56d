"""Which ranks wait for which in which collective, from what they have launched: a wait-for graph.

A rank waits for the members of a process group that have not launched the collective that it is in.
A rank that others wait for and that waits for none holds them up. Ranks that wait for each other in
a cycle have launched the collectives of several groups in different orders; none of them is more to
blame than another.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.stalls import Call, GroupCalls, RankStall

DEFAULT_GROUP = "default_pg"
"""Description of the group of all ranks, whose members gloo's recorder does not list."""

_MESSAGE = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")


@dataclass(frozen=True, slots=True)
class Wait:
    """A collective that a rank has launched and that has not completed.

    Args:
        missing: ranks that have not launched it.
        unknown: ranks of its group of which nothing is known.
    """

    rank: int
    group: GroupCalls
    call: Call
    missing: frozenset[int]
    unknown: frozenset[int]

    @property
    def awaited(self) -> frozenset[int]:
        """Return all ranks that it may wait for."""
        return self.missing | self.unknown


def members(stalls: Mapping[int, RankStall]) -> Mapping[str, frozenset[int]]:
    """Return the ranks of each process group, as far as they are listed or seen in it."""
    found: dict[str, set[int]] = defaultdict(set)
    for rank, stall in stalls.items():
        for group in stall.groups:
            found[group.name] |= {rank, *group.ranks}
            if group.description == DEFAULT_GROUP:
                found[group.name] |= set(range(stall.world_size or 0))
    return {name: frozenset(ranks) for name, ranks in found.items()}


def waits(stalls: Mapping[int, RankStall]) -> tuple[Wait, ...]:
    """Return the collectives that each rank waits in: the oldest incomplete one of each group."""
    ranks_of = members(stalls)
    enqueued = {
        (rank, group.name): group.enqueued
        for rank, stall in stalls.items()
        for group in stall.groups
    }
    silent = frozenset(rank for rank, stall in stalls.items() if stall.recorder)
    found = []
    for rank, stall in sorted(stalls.items()):
        for group in stall.groups:
            others = ranks_of[group.name] - {rank}
            unknown = others & silent | others - stalls.keys()
            call = next((one for one in group.calls if not one.done and not one.message), None)
            if call is not None:
                known = others - unknown
                late = {m for m in known if enqueued.get((m, group.name), 0) < call.sequence}
                found.append(Wait(rank, group, call, frozenset(late), unknown))
            found += _for_messages(rank, group, stalls)
    return tuple(found)


def _for_messages(rank: int, group: GroupCalls, stalls: Mapping[int, RankStall]) -> Sequence[Wait]:
    """Return the messages that a rank waits for and whose other side was not called."""
    found = []
    for call in group.calls:
        match = _MESSAGE.search(call.operation)
        if call.done or not call.message or match is None:
            continue
        peer = _global(int(match[3]), group)
        other = stalls.get(peer)
        unknown = other is None or bool(other.recorder)
        if unknown or not _answers(match[1], rank, peer, other, group):
            sides = frozenset((peer,)), frozenset[int]()
            late, silent = reversed(sides) if unknown else sides
            found.append(Wait(rank, group, call, late, silent))
    return found


def _global(number: int, group: GroupCalls) -> int:
    """Return the global rank of a member; messages name members by their index in the group."""
    return group.ranks[number] if number < len(group.ranks) else number


def _answers(what: str, rank: int, peer: int, other: RankStall | None, group: GroupCalls) -> bool:
    """Return True if a rank's peer is in the other half of its message."""
    wanted = "recv" if what == "send" else "send"
    for theirs in other.groups if other else ():
        for call in theirs.calls if theirs.name == group.name else ():
            match = _MESSAGE.search(call.operation)
            mutual = match and _global(int(match[3]), theirs) == rank
            if match and mutual and not call.done and match[1] == wanted:
                return True
    return False


def edges(found: Sequence[Wait]) -> Mapping[int, frozenset[int]]:
    """Return for each waiting rank the ranks that it waits for."""
    by_rank: dict[int, set[int]] = defaultdict(set)
    for wait in found:
        by_rank[wait.rank] |= wait.awaited
    return {rank: frozenset(ranks) for rank, ranks in by_rank.items()}


def sinks(graph: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the ranks that others wait for and that wait in no collective themselves."""
    return frozenset(rank for ranks in graph.values() for rank in ranks) - graph.keys()


def circle(graph: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the ranks that wait for themselves by way of others."""
    return frozenset(rank for rank in graph if rank in _reached(graph, rank))


def _reached(graph: Mapping[int, frozenset[int]], start: int) -> set[int]:
    seen: set[int] = set()
    left = [*graph[start]]
    while left:
        rank = left.pop()
        if rank not in seen:
            seen.add(rank)
            left.extend(graph.get(rank, ()))
    return seen
