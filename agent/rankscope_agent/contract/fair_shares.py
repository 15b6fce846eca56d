"""Fair shares of a limited resource, and fair scheduling of turns: pure.

A holder belongs to a group: a pod to a namespace, or a user to a machine. Groups share first, then
the holders of each group, so that neither many files of one pod nor many pods of one namespace
crowd out others.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Holder = tuple[str, str]
"""The group, and the holder within it."""

Key = TypeVar("Key")
Item = TypeVar("Item")


def allot(wanted: Mapping[Key, int], available: int) -> dict[Key, int]:
    """Return each one's max-min fair allotment.

    Whoever wants less than an equal part gets what it wants, and the remainder is divided among the
    others. What cannot be divided evenly goes to the last ones in the mapping.

    Args:
        wanted: how much each one could use.
        available: how much there is to share.
    """
    shares: dict[Key, int] = {}
    left = available
    smallest_first = sorted(wanted, key=lambda one: wanted[one])
    for served, one in enumerate(smallest_first):
        shares[one] = min(wanted[one], left // (len(wanted) - served))
        left -= shares[one]
    return shares


def allot_to_holders(wanted: Mapping[Holder, int], available: int) -> dict[Holder, int]:
    """Return each holder's allotment: shared among groups, then among the holders of each group."""
    groups: dict[str, dict[Holder, int]] = defaultdict(dict)
    for holder, amount in wanted.items():
        groups[holder[0]][holder] = amount
    of_groups = allot({name: sum(one.values()) for name, one in groups.items()}, available)
    return {
        holder: share
        for name, members in groups.items()
        for holder, share in allot(members, of_groups[name]).items()
    }


def allot_to_items(owned: Sequence[tuple[Holder, int]], available: int) -> list[int]:
    """Return each item's allotment: shared among holders, then among the items of each holder.

    Args:
        owned: the holder of each item, and how much the item could use.
        available: how much there is to share.
    """
    items: dict[Holder, dict[int, int]] = defaultdict(dict)
    for number, (holder, amount) in enumerate(owned):
        items[holder][number] = amount
    of_holders = allot_to_holders({one: sum(own.values()) for one, own in items.items()}, available)
    shares: dict[int, int] = {}
    for holder, own in items.items():
        shares |= allot(own, of_holders[holder])
    return [shares[number] for number in range(len(owned))]


def choose(items: Iterable[Item], holder: Callable[[Item], Holder], available: int) -> list[Item]:
    """Return the items that fit: of each holder the first ones, in their original order."""
    owned = [(holder(item), item) for item in items]
    left = allot_to_holders(Counter(owner for owner, _ in owned), available)
    chosen = []
    for owner, item in owned:
        if left[owner]:
            left[owner] -= 1
            chosen.append(item)
    return chosen


def take_turns(
    items: Iterable[Item], holder: Callable[[Item], Holder], serve: Callable[[Item], bool]
) -> None:
    """Serve items round robin by group, then by holder, until none wants another turn.

    Args:
        items: what to serve, in the order of the first round.
        holder: returns the holder of an item.
        serve: gives an item its turn, and returns whether it wants another one.
    """
    groups: dict[str, dict[Holder, deque[Item]]] = {}
    for item in items:
        owner = holder(item)
        groups.setdefault(owner[0], {}).setdefault(owner, deque()).append(item)
    while groups:
        for name, holders in tuple(groups.items()):
            owner = next(iter(holders))
            queue = holders.pop(owner)
            item = queue.popleft()
            if serve(item):
                queue.append(item)
            if queue:
                holders[owner] = queue  # behind the others of its group
            if not holders:
                del groups[name]
