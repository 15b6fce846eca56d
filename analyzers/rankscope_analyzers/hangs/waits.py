"""Which ranks wait for which in which collective, from what they have launched: a wait-for graph.

A rank waits for the members of a process group that have not launched the collective that it is in.
A rank that others wait for and that waits for none holds them up. Ranks that wait for each other in
a cycle have launched the collectives of several groups in different orders; none of them is more to
blame than another.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.stalls import MAX_MEMBERS, Call, GroupCalls, RankStall
from rankscope_analyzers.hangs.cycles import on_cycles

DEFAULT_GROUP = "default_pg"
"""Description of the group of all ranks, whose members gloo's recorder does not list."""

_MESSAGE = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")


@dataclass(frozen=True, slots=True)
class Wait:
    """A collective that a rank has launched and that has not completed.

    Args:
        awaited: ranks that have not launched it, and those of its group of which nothing is known.
            Ranks that wait in the same collective share it: their number times theirs would be
            millions in a large job.
    """

    rank: int
    group: GroupCalls
    call: Call
    awaited: frozenset[int]


def members(stalls: Mapping[int, RankStall]) -> Mapping[str, frozenset[int]]:
    """Return the ranks of each process group, as far as they are listed or seen in it."""
    found: dict[str, set[int]] = defaultdict(set)
    listed: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    everybody, size = "", 0
    for rank, stall in stalls.items():
        for group in stall.groups:
            found[group.name].add(rank)
            listed[group.name].add(group.ranks)
            if group.description == DEFAULT_GROUP:
                everybody, size = everybody or group.name, max(size, stall.world_size or 0)
    for name, several in listed.items():
        found[name].update(*several)
    if everybody:
        found[everybody].update(range(min(size, MAX_MEMBERS)))
    return {name: frozenset(ranks) for name, ranks in found.items()}


class _Absences:
    """Which ranks are awaited in a collective."""

    def __init__(self, stalls: Mapping[int, RankStall]) -> None:
        silent = frozenset(rank for rank, stall in stalls.items() if stall.recorder)
        self._unknown: dict[str, frozenset[int]] = {}
        self._known: dict[str, frozenset[int]] = {}
        for name, ranks in members(stalls).items():
            self._unknown[name] = ranks & silent | ranks - stalls.keys()
            self._known[name] = ranks - self._unknown[name]
        self._enqueued: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._found: dict[tuple[tuple[str, str], int], frozenset[int]] = {}
        for rank, stall in stalls.items():
            for group in stall.groups:
                self._enqueued[group.key][rank] = group.enqueued

    def of(self, rank: int, group: GroupCalls, sequence: int) -> frozenset[int]:
        """Return the ranks that have not launched a collective of a rank, as far as is known."""
        key = group.key, sequence
        if key not in self._found:
            enqueued, known = self._enqueued[group.key], self._known[group.name]
            late = (one for one in known if enqueued.get(one, 0) < sequence)
            self._found[key] = self._unknown[group.name].union(late)
        awaited = self._found[key]
        return awaited - {rank} if rank in awaited else awaited


def waits(stalls: Mapping[int, RankStall]) -> tuple[Wait, ...]:
    """Return the collectives that each rank waits in: the oldest incomplete one of each group."""
    absences, found = _Absences(stalls), []
    for rank, stall in sorted(stalls.items()):
        for group in stall.groups:
            call = next((one for one in group.calls if not one.done and not one.message), None)
            if call is not None:
                awaited = absences.of(rank, group, call.sequence)
                found.append(Wait(rank, group, call, awaited))
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
            found.append(Wait(rank, group, call, frozenset((peer,))))
    return found


def _global(number: int, group: GroupCalls) -> int:
    """Return the global rank of a member; messages name members by their index in the group."""
    return group.ranks[number] if number < len(group.ranks) else number


def _answers(what: str, rank: int, peer: int, other: RankStall | None, group: GroupCalls) -> bool:
    """Return True if a rank's peer is in the other half of its message."""
    wanted = "recv" if what == "send" else "send"
    for theirs in other.groups if other else ():
        for call in theirs.calls if theirs.key == group.key else ():
            match = _MESSAGE.search(call.operation)
            mutual = match and _global(int(match[3]), theirs) == rank
            if match and mutual and not call.done and match[1] == wanted:
                return True
    return False


def sinks(found: Sequence[Wait]) -> frozenset[int]:
    """Return the ranks that others wait for and that wait in no collective themselves."""
    awaited = frozenset[int]().union(*{wait.awaited for wait in found})
    return awaited - {wait.rank for wait in found}


def circle(found: Sequence[Wait]) -> frozenset[int]:
    """Return the ranks that wait for themselves by way of others."""
    following: dict[int | frozenset[int], Collection[int | frozenset[int]]] = {}
    together: dict[int, set[frozenset[int]]] = defaultdict(set)
    for wait in found:
        together[wait.rank].add(wait.awaited)
        following[wait.awaited] = wait.awaited
    return frozenset(one for one in on_cycles({**following, **together}) if isinstance(one, int))


def unstarted(found: Sequence[Wait], stalls: Mapping[int, RankStall]) -> frozenset[int]:
    """Return the ranks whose GPUs have not begun the collective that others are in, at most half.

    A GPU that is in another collective waits there. Without times on the device, which its
    recorder would have of completed ones too, nothing is known of a rank.
    """
    busy = {wait.rank for wait in found if wait.call.started}
    timed = {rank for rank, stall in stalls.items() if _is_timed(stall)}
    begun = {(wait.group.key, wait.call.sequence) for wait in found if wait.call.started}
    idle = frozenset(
        wait.rank
        for wait in found
        if wait.rank in timed - busy and (wait.group.key, wait.call.sequence) in begun
    )
    return idle if 2 * len(idle) <= len(stalls) else frozenset()


def _is_timed(stall: RankStall) -> bool:
    return any(call.started for group in stall.groups for call in group.calls)
