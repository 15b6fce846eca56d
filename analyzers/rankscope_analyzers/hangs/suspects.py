"""Which ranks hold up a hung job, and the evidence, from the state of its ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.contract.stalls import Call, GroupCalls, RankStall
from rankscope_analyzers.hangs.mismatches import Mismatch, mismatches
from rankscope_analyzers.hangs.waits import Wait, circle, sinks, unstarted, waits
from rankscope_analyzers.text.name_lists import ranks_named

SHOWN = 3
"""Operations named in a sentence at most."""

LOADER = "torch/utils/data/"
EXCHANGE = "torch/distributed/distributed_c10d.py"
"""Files of torch in which a rank waits for input, and for messages from other ranks."""

DISTRIBUTED, CHECKPOINTS = "torch/distributed/", "torch/distributed/checkpoint/"
"""Folders of the code that waits for messages, and of that part of it that waits for files."""

PROBE = "/rankscope_probe.py"
"""File whose frames stand between a program and what it calls."""

TIMED_WAIT = "wait"
"""Function of the probe's around `wait` of torch's Work, and whatever else blocks for others."""

_LIBRARY = re.compile(r"/torch/|/rankscope_probe\.py$|/lib/python3\.\d+/(?!site-packages/)|^<")
"""Files that are not the program's: those of torch, the probe and the standard library, or none."""

RENDEZVOUS = frozenset(("init_process_group", "_new_process_group_helper", "rendezvous"))


@dataclass(frozen=True, slots=True)
class Blame:
    """What the states of ranks show.

    Args:
        ranks: the suspects; empty if no rank differs from the others.
        sentence: what was seen.
    """

    ranks: tuple[int, ...] = ()
    sentence: str = ""


def blame(stalls: Mapping[int, RankStall]) -> Blame:
    """Return the ranks that hold up the others."""
    different = mismatches(stalls)
    if different:
        return _of_mismatch(different[0])
    found = waits(stalls)
    ends = sinks(found)
    if ends:
        return _of_ends(ends, found, stalls)
    if around := circle(found) or _in_unknown_groups(found):
        return Blame((), _different_orders(around, found))
    if idle := unstarted(found, stalls):
        return _of_unstarted(idle, found)
    if found:
        return Blame((), _all_entered(found))
    return _of_states(stalls)


def newest_call(stalls: Iterable[RankStall]) -> float | None:
    """Return when the newest collective of ranks was launched, None without any."""
    return max(
        (
            call.created_unix_seconds
            for stall in stalls
            for group in stall.groups
            for call in group.calls
        ),
        default=None,
    )


def since_newest_call(stalls: Iterable[RankStall]) -> float | None:
    """Return how long ago a rank launched one, each by its node's clock, None without any."""
    newest = ((stall.taken_unix_seconds, newest_call([stall])) for stall in stalls)
    return min((taken - called for taken, called in newest if called is not None), default=None)


def waiting(stalls: Mapping[int, RankStall]) -> bool:
    """Return True if a rank is in a collective that does not end."""
    return bool(waits(stalls))


def _of_mismatch(one: Mismatch) -> Blame:
    together: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, call in one.calls.items():
        together[call.operation, call.shape].append(rank)
    sentences = [
        f"{ranks_named(ranks)} in {_written(one.calls[ranks[0]], one.group, shape=True)}"
        for ranks in sorted(together.values(), key=len)
    ]
    return Blame(one.differing, f"ranks are in different collectives: {_listed(sentences)}")


def _of_ends(ends: frozenset[int], found: Sequence[Wait], stalls: Mapping[int, RankStall]) -> Blame:
    """Return the blame of ranks that others wait for and that wait for none in a collective."""
    done = {rank: _doing(stalls[rank]) for rank in sorted(ends) if rank in stalls}
    unasked = {rank for rank, what in done.items() if not stalls[rank].asked and not what}
    excused = unasked | {rank for rank, what in done.items() if what.startswith("waits for")}
    first = sorted(ends, key=lambda rank: (rank in excused, rank))
    named = [rank for rank in first if rank not in excused]
    sentences = []
    for rank in first[:SHOWN]:
        what = done.get(rank, "")
        absence = _absence(rank, stalls.get(rank), found)
        sentences.append(f"rank {rank} {absence}{what and ': it ' + what}")
    return Blame(tuple(named), _listed(sentences, len(ends)))


def _absence(rank: int, stall: RankStall | None, found: Sequence[Wait]) -> str:
    """Describe what a rank did not enter, and how many ranks wait there."""
    there = [wait for wait in found if rank in wait.awaited]
    first = min(there, key=lambda wait: wait.call.created_unix_seconds)
    others = [wait for wait in there if wait.group.key == first.group.key]
    operation = _written(first.call, first.group)
    who = f"{len(others)} {'rank waits' if len(others) == 1 else 'ranks wait'}"
    if stall is None or stall.recorder:
        silence = "does not answer" if stall is None or stall.asked else "was not asked in time"
        return f"{silence}, and {who} for it or others in {operation}"
    return f"has not entered {operation}, where {who}"


def _doing(stall: RankStall) -> str:
    """Describe what a rank does that has entered no collective."""
    if stall.state in ("T", "t"):
        return "is stopped by a signal"
    if stall.state == "D":
        return "is in uninterruptible sleep (state D), as on a file system that does not answer"
    own = next((frame for frame in stall.stack if not _LIBRARY.search(frame.file)), None)
    place = f" ({_place(own)})" if own else ""
    if any(LOADER in frame.file for frame in stall.stack):
        return f"is in its data loader{place}"
    inside = [frame for frame in stall.stack if frame.file.endswith(EXCHANGE)]
    if any(frame.function in RENDEZVOUS for frame in inside):
        return f"waits for others to join a process group{place}"
    if inside or _in_timed_wait(stall.stack):
        within = f", in {inside[0].function}" if inside else ""
        return f"waits for a message or a collective{within}{place}"
    return f"is{place.replace('(', 'in ').rstrip(')')}" if place else ""


def _place(frame: Frame) -> str:
    return f"{frame.function}, {'/'.join(frame.file.split('/')[-2:])}:{frame.line}"


def _in_unknown_groups(found: Sequence[Wait]) -> frozenset[int]:
    """Return the ranks that wait in several groups whose other members are unknown."""
    alone = [wait for wait in found if not wait.awaited and not wait.group.ranks]
    keys = {wait.group.key for wait in alone}
    return frozenset(wait.rank for wait in alone) if len(keys) > 1 else frozenset()


def _different_orders(around: frozenset[int], found: Sequence[Wait]) -> str:
    within = [wait for wait in found if wait.rank in around]
    together: dict[str, list[int]] = defaultdict(list)
    for wait in within:
        together[_written(wait.call, wait.group)].append(wait.rank)
    sentences = [f"{ranks_named(sorted(ranks))} in {what}" for what, ranks in together.items()]
    return (
        f"{ranks_named(sorted(around))} wait for each other, {_listed(sentences)}:"
        " collectives of several groups were launched in different orders"
    )


def _all_entered(found: Sequence[Wait]) -> str:
    first = min(found, key=lambda wait: wait.call.created_unix_seconds)
    return (
        f"all ranks that are known have entered {_written(first.call, first.group)}, which does not"
        " end: look at the network"
    )


def _of_unstarted(idle: frozenset[int], found: Sequence[Wait]) -> Blame:
    """Return the blame of ranks whose GPUs have not begun what those of others are in."""
    begun = [wait for wait in found if wait.call.started]
    keys = {(wait.group.key, wait.call.sequence) for wait in found if wait.rank in idle}
    there = [wait for wait in begun if (wait.group.key, wait.call.sequence) in keys]
    others, one = {wait.rank for wait in there}, len(idle) == 1
    return Blame(
        tuple(sorted(idle)),
        f"all ranks that are known have entered {_written(there[0].call, there[0].group)}, and"
        f" the GPU{'' if one else 's'} of {ranks_named(sorted(idle))} {'has' if one else 'have'}"
        f" not begun it, where those of {ranks_named(sorted(others))} wait: look at"
        f" what {'it computes' if one else 'they compute'}",
    )


def _of_states(stalls: Mapping[int, RankStall]) -> Blame:
    """Return the blame if no rank waits in a collective: from the states of processes alone."""
    held = [rank for rank, stall in sorted(stalls.items()) if stall.state in ("T", "t", "D")]
    if not held or 2 * len(held) > len(stalls):
        return _of_stacks(stalls)
    return Blame(tuple(held), _listed([f"rank {rank} {_doing(stalls[rank])}" for rank in held]))


def _of_stacks(stalls: Mapping[int, RankStall]) -> Blame:
    """Return the blame of few ranks that are in no exchange where most wait for messages.

    What stages of a pipeline send each other are no collectives, of which every member is known.
    """
    known = {rank: stall.stack for rank, stall in sorted(stalls.items()) if stall.stack}
    waits = {rank: place for rank, stack in known.items() if (place := _waits_in(stack))}
    others = tuple(rank for rank in known if rank not in waits)
    if not others or 2 * len(others) >= len(known):
        return Blame()
    done = [f"rank {rank} {_doing(stalls[rank]) or 'is elsewhere'}" for rank in others]
    places = sorted(set(waits.values()))[:SHOWN]
    there = f"{ranks_named(sorted(waits))} wait for messages, in {' and '.join(places)}"
    return Blame(others, f"{there}; {_listed(done)}")


def _waits_in(stack: Sequence[Frame]) -> str:
    """Return the function in which a rank waits for others, empty if it does something else.

    It is one of torch.distributed, or one of the program's that waits for what it has launched.
    """
    frame = next((one for one in stack if not one.file.endswith(PROBE)), None)
    if frame is None:
        return ""
    inside = DISTRIBUTED in frame.file and CHECKPOINTS not in frame.file
    return frame.function if inside or _in_timed_wait(stack) else ""


def _in_timed_wait(stack: Sequence[Frame]) -> bool:
    """Return True if a rank stands where the probe times a wait for a collective or a message."""
    return bool(stack) and stack[0].file.endswith(PROBE) and stack[0].function == TIMED_WAIT


def _written(call: Call, group: GroupCalls, *, shape: bool = False) -> str:
    _, _, operation = call.operation.rpartition(":")
    described = group.description not in ("", "undefined")
    name = f"{group.description}" if described else f"process group {group.name}"
    sizes = f" of {call.shape}" if shape and call.shape else ""
    return f"{operation} {call.sequence}{sizes} of {name}"


def _listed(sentences: Sequence[str], count: int | None = None) -> str:
    """Join the first sentences; `count` is how many there are if not all were made."""
    more = (len(sentences) if count is None else count) - SHOWN
    return "; ".join(sentences[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
