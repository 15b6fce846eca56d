"""Who holds up a collective, from the messages of PyTorch's watchdogs: pure, suspects in order.

A rank that prints a timeout waited, so it is a victim; the culprit is usually a rank that prints
nothing or is behind the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.watchdog import GroupState, Timeout, WatchdogFacts

MAX_SUSPECTS = 64
"""Suspects listed; more silent ranks than this mean a lost node or an incomplete log."""

OF_EQUAL_SIZES = frozenset(
    ("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
)
"""Operations whose tensors have one size on all ranks. Those of a scatter have another one on its
root, those of an exchange of experts' tokens on each rank."""

MESSAGES = frozenset(("SEND", "RECV"))
BATCH = "COALESCED"
"""Messages, and a batch, which holds messages if PyTorch prints no sizes (ProcessGroupNCCL.cpp
endCoalescing). Each rank counts its own, so that their numbers differ without anything wrong."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspected rank, the reason, and the test that found it; the first tests weigh most."""

    rank: int
    test: str
    why: str


def suspects(facts: Facts) -> tuple[Suspect, ...]:
    """Return the suspects, the strongest first, each rank once."""
    seen: dict[int, Suspect] = {}
    for test in TESTS:
        for suspect in test(facts):
            if len(seen) < MAX_SUSPECTS:
                seen.setdefault(suspect.rank, suspect)
    return tuple(seen.values())


def _named(facts: Facts) -> Iterator[Suspect]:
    """Yield the culprits in PyTorch's desync report."""
    for rank in sorted(facts.watchdog.culprits):
        culprit = facts.watchdog.culprits[rank]
        if culprit.finished is None:
            why = f"joined collective #{culprit.missing} and did not finish it"
        else:
            why = f"finished collective #{culprit.finished} and did not join #{culprit.missing}"
        yield Suspect(rank, "desync_report", f"PyTorch's desync report: {why}")


def _absent(facts: Facts) -> Iterator[Suspect]:
    """Yield the ranks of which a monitored barrier says that they did not come."""
    for rank in sorted(facts.watchdog.absent):
        yield Suspect(rank, "monitored_barrier", "did not come to a monitored barrier")


def _behind(facts: Facts) -> Iterator[Suspect]:
    """Yield ranks that have not enqueued the collective in which others of their group wait.

    Those that wait there may have enqueued any number of further ones: hosts run ahead of GPUs.
    """
    first, messages = _first_of_each(facts.watchdog), _groups_with_messages(facts.watchdog)
    groups: dict[str, list[GroupState]] = {}
    for state in facts.watchdog.states.values():
        if state.group not in messages:
            groups.setdefault(state.group, []).append(state)
    for name, group in groups.items():
        waits = [timeout.sequence for timeout in first.get(name, {}).values()]
        waits += [max(one.completed, 0) + 1 for one in group if one.enqueued > one.completed]
        awaited = max(waits, default=0)
        behind = [one for one in group if one.enqueued < awaited]
        known = {one.rank for one in group} | first.get(name, {}).keys()
        if 2 * len(behind) > len(known):
            continue  # the few that are ahead are of another attempt, or alone in what they do
        for state in sorted(behind, key=lambda state: (state.enqueued, state.rank)):
            why = f"had enqueued {max(state.enqueued, 0)} collectives, others wait in #{awaited}"
            yield Suspect(state.rank, "behind", why)


def _different(facts: Facts) -> Iterator[Suspect]:
    """Yield ranks that called something else than most, or called it less often."""
    first = _first_of_each(facts.watchdog)
    for group in sorted(first.keys() - _groups_with_messages(facts.watchdog)):
        waiting = {rank: one for rank, one in first[group].items() if one.operation}
        sized = all(one.elements_in is not None for one in waiting.values())
        calls = {rank: _call(one, sized=sized) for rank, one in waiting.items()}
        shapes = Counter(calls.values())
        if not shapes:
            continue
        (usual, count), *others = shapes.most_common()
        if not others or count * 2 <= len(calls):
            continue
        for rank, call in sorted(calls.items()):
            if call != usual:
                why = f"waits in {_written(call)}, most in {_written(usual)}"
                yield Suspect(rank, "different_collective", why)


def _first_of_each(watchdog: WatchdogFacts) -> dict[str, dict[int, Timeout]]:
    """Return for each group the first collective that each rank gave up on: the one it hangs in."""
    groups: dict[str, dict[int, Timeout]] = {}
    for timeout in watchdog.timeouts.values():
        if timeout.rank is not None:
            first = groups.setdefault(timeout.group, {})
            known = first.get(timeout.rank)
            if known is None or timeout.sequence < known.sequence:
                first[timeout.rank] = timeout
    return groups


def _groups_with_messages(watchdog: WatchdogFacts) -> frozenset[str]:
    """Return the groups in which a rank waits for a message, whose numbers prove nothing."""
    return frozenset(
        one.group
        for one in watchdog.timeouts.values()
        if one.operation in MESSAGES or (one.operation == BATCH and one.elements_in is None)
    )


def _call(timeout: Timeout, *, sized: bool) -> tuple[int, str, int | None]:
    """Return what the ranks of one collective have in common; sizes if all of them print some."""
    sizes = timeout.elements_in if sized and timeout.operation in OF_EQUAL_SIZES else None
    return timeout.sequence, timeout.operation, sizes


def _written(call: tuple[int, str, int | None]) -> str:
    size = "" if call[2] is None else f" of {call[2]} elements"
    return f"{call[1]} #{call[0]}{size}"


def _stuck(facts: Facts) -> Iterator[Suspect]:
    """Yield ranks whose watchdogs got stuck and that are not known to have waited."""
    for rank in sorted(facts.watchdog.stuck - victims(facts)):
        yield Suspect(rank, "stuck", "its watchdog got stuck: a CUDA or NCCL call does not return")


def _silent(facts: Facts) -> Iterator[Suspect]:
    """Yield the ranks that print nothing of waiting while most do, in a job of known size."""
    size, waiting = job_size(facts), victims(facts)
    if len(waiting) * 2 <= size:
        return
    for rank in sorted(set(range(size)) - waiting):
        why = f"printed of no collective that it waits there, {len(waiting)} of {size} ranks did"
        yield Suspect(rank, "silent", why)


def victims(facts: Facts) -> frozenset[int]:
    """Return the ranks that waited: they gave up, or had a collective that was not complete."""
    gave_up = {one.rank for one in facts.watchdog.timeouts.values() if one.rank is not None}
    states = facts.watchdog.states.values()
    return frozenset(gave_up | {one.rank for one in states if one.enqueued > one.completed})


def job_size(facts: Facts) -> int:
    """Return the number of ranks that NCCL states, else others, or at least those that write."""
    named = facts.watchdog.ranks | facts.tagged_ranks
    stated = max(facts.world_size, facts.group_size, max(named, default=-1) + 1)
    return facts.largest_comm or stated


TESTS: tuple[Callable[[Facts], Iterator[Suspect]], ...] = (
    _named,
    _absent,
    _behind,
    _different,
    _stuck,
    _silent,
)
"""The tests, strongest evidence first."""
