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
    """Yield the culprits in PyTorch's desync report, the only text that names them."""
    for rank in sorted(facts.watchdog.culprits):
        culprit = facts.watchdog.culprits[rank]
        if culprit.finished is None:
            why = f"joined collective #{culprit.missing} and did not finish it"
        else:
            why = f"finished collective #{culprit.finished} and did not join #{culprit.missing}"
        yield Suspect(rank, "desync_report", f"PyTorch's desync report: {why}")


def _behind(facts: Facts) -> Iterator[Suspect]:
    """Yield ranks that enqueued fewer collectives than the group's others, which wait for them."""
    groups: dict[str, list[GroupState]] = {}
    for state in facts.watchdog.states.values():
        groups.setdefault(state.group, []).append(state)
    for group in groups.values():
        furthest = max(state.enqueued for state in group)
        for state in sorted(group, key=lambda state: (state.enqueued, state.rank)):
            if state.enqueued < furthest:
                yield Suspect(
                    state.rank,
                    "behind",
                    f"had enqueued {state.enqueued} collectives, others {furthest}",
                )


def _different(facts: Facts) -> Iterator[Suspect]:
    """Yield ranks that called something else than most, or called it less often."""
    for waiting in _first_of_each(facts.watchdog):
        shapes = Counter(_call(timeout) for timeout in waiting.values())
        (usual, count), *others = shapes.most_common()
        if not others or count * 2 <= len(waiting):
            continue
        for rank in sorted(waiting):
            call = _call(waiting[rank])
            if call != usual:
                why = f"waits in {_written(call)}, most in {_written(usual)}"
                yield Suspect(rank, "different_collective", why)


def _first_of_each(watchdog: WatchdogFacts) -> Iterator[dict[int, Timeout]]:
    """Yield for each group the first collective that each rank gave up on: the one it hangs in."""
    groups: dict[str, dict[int, Timeout]] = {}
    for timeout in watchdog.timeouts.values():
        if timeout.rank is not None:
            first = groups.setdefault(timeout.group, {})
            known = first.get(timeout.rank)
            if known is None or timeout.sequence < known.sequence:
                first[timeout.rank] = timeout
    for group in sorted(groups):
        yield groups[group]


def _call(timeout: Timeout) -> tuple[int, str, int | None]:
    sizes = timeout.elements_in if timeout.operation in OF_EQUAL_SIZES else None
    return timeout.sequence, timeout.operation, sizes


def _written(call: tuple[int, str, int | None]) -> str:
    size = "" if call[2] is None else f" of {call[2]} elements"
    return f"{call[1]} #{call[0]}{size}"


def _signalling(facts: Facts) -> Iterator[Suspect]:
    """Yield the source of the dump signal, which gave up first: a victim, but a hint."""
    for rank in sorted(facts.watchdog.signalled_by):
        yield Suspect(rank, "first_to_signal", "others name it as the first that timed out")


def _silent(facts: Facts) -> Iterator[Suspect]:
    """Yield the ranks that print no timeout while most do, in a job of known size."""
    size = facts.largest_comm
    victims = {t.rank for t in facts.watchdog.timeouts.values() if t.rank is not None}
    if not size or len(victims) * 2 <= size:
        return
    for rank in range(size):
        if rank not in victims:
            yield Suspect(rank, "silent", f"printed no timeout, {len(victims)} of {size} ranks did")


TESTS: tuple[Callable[[Facts], Iterator[Suspect]], ...] = (
    _named,
    _behind,
    _different,
    _silent,
    _signalling,
)
"""The tests, strongest evidence first."""
