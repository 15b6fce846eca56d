"""Collectives of one group and number that ranks entered with different operations or sizes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.stalls import Call, GroupCalls, RankStall

OF_EQUAL_SIZES = frozenset(("all_reduce", "broadcast", "_all_gather_base", "_reduce_scatter_base"))
"""Operations whose tensors have one size on all ranks; in others each rank may have its own."""

Key = tuple[str, str]
"""Name and backend of a group."""

LEAST_RANKS = 3
"""Of two ranks it is unknown which one is wrong."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of a group that are in different collectives with the same number.

    Args:
        calls: of each rank.
        usual: what most ranks called; None if there is no majority.
        differing: ranks that called something other than the majority; empty if undecidable.
    """

    group: GroupCalls
    sequence: int
    calls: Mapping[int, Call]
    usual: Call | None
    differing: tuple[int, ...]


def mismatches(stalls: Mapping[int, RankStall]) -> tuple[Mismatch, ...]:
    """Return the first mismatch of each group."""
    found: dict[Key, dict[int, dict[int, Call]]] = defaultdict(lambda: defaultdict(dict))
    groups: dict[Key, GroupCalls] = {}
    for rank, stall in sorted(stalls.items()):
        for group in stall.groups:
            groups[group.key] = group
            for call in group.calls:
                if not call.message:
                    found[group.key][call.sequence][rank] = call
    made = (_first(groups[key], found[key]) for key in sorted(groups))
    return tuple(one for one in made if one is not None)


def _first(group: GroupCalls, calls: Mapping[int, Mapping[int, Call]]) -> Mismatch | None:
    for sequence in sorted(calls):
        called = calls[sequence]
        kinds = Counter(map(kind, called.values()))
        # A collective that all have completed did no harm, whatever it was.
        if len(kinds) > 1 and not all(call.done for call in called.values()):
            return _mismatch(group, sequence, called, kinds)
    return None


def _mismatch(
    group: GroupCalls, sequence: int, called: Mapping[int, Call], kinds: Counter[tuple[str, str]]
) -> Mismatch:
    (most, count), *_ = kinds.most_common()
    clear = len(called) >= LEAST_RANKS and 2 * count > len(called)
    differing: Sequence[int] = [r for r in called if kind(called[r]) != most] if clear else ()
    usual = next((call for call in called.values() if kind(call) == most), None) if clear else None
    return Mismatch(group, sequence, called, usual, tuple(sorted(differing)))


def kind(call: Call) -> tuple[str, str]:
    """Return what the ranks of one collective have in common."""
    _, _, operation = call.operation.rpartition(":")
    return call.operation, call.shape if operation in OF_EQUAL_SIZES else ""
