"""Members of communicators that have not said yet how long their initialisation took."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope_agent.contract.nccl.facts import Member, Process

Slot = tuple[str, int, int, "int | None"]


class UntimedMembers:
    """Finds the member that a line with times is about without looking through all of them.

    Args:
        members: those known so far, oldest first.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        # By pointer only where several share a slot, which few do: a dictionary for each of a
        # log's members would weigh an eighth of what is kept of them.
        self._waiting: dict[Slot, Member | dict[str, Member]] = {}
        for member in members:
            self.add(member)

    def add(self, member: Member) -> None:
        """Expect times of a member whose number of ranks may have become known."""
        if member.init_seconds:
            return
        slot = _slot(member)
        same = self._waiting.setdefault(slot, member)
        if isinstance(same, Member):
            if same.pointer == member.pointer:
                self._waiting[slot] = member
                return
            same = self._waiting[slot] = {same.pointer: same}
        same.pop(member.pointer, None)
        same[member.pointer] = member

    def discard(self, member: Member) -> None:
        """Expect no times of a member that is kept no longer, or that another one replaces."""
        slot = _slot(member)
        same = self._waiting.get(slot)
        if same is member:
            del self._waiting[slot]
        elif isinstance(same, dict) and same.get(member.pointer) is member:
            del same[member.pointer]
            if not same:
                del self._waiting[slot]

    def take(self, process: Process, rank: int, nranks: int) -> Member | None:
        """Return the newest member of a process with this rank and size; expect no more of it."""
        same = self._waiting.get((process.host, process.pid, rank, nranks))
        newest = same[next(reversed(same))] if isinstance(same, dict) else same
        if newest is not None:
            self.discard(newest)
        return newest


def _slot(member: Member) -> Slot:
    return member.process.host, member.process.pid, member.rank, member.nranks
