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
        self._waiting: dict[Slot, dict[str, Member]] = {}
        for member in members:
            self.add(member)

    def add(self, member: Member) -> None:
        """Expect times of a member whose number of ranks may have become known."""
        if not member.init_seconds:
            same = self._waiting.setdefault(_slot(member), {})
            same.pop(member.pointer, None)
            same[member.pointer] = member

    def discard(self, member: Member) -> None:
        """Expect no times of a member that is kept no longer, or that another one replaces."""
        slot = _slot(member)
        same = self._waiting.get(slot, {})
        if same.get(member.pointer) is member:
            del same[member.pointer]
            if not same:
                del self._waiting[slot]

    def take(self, process: Process, rank: int, nranks: int) -> Member | None:
        """Return the newest member of a process with this rank and size; expect no more of it."""
        same = self._waiting.get((process.host, process.pid, rank, nranks))
        if not same:
            return None
        newest = same[next(reversed(same))]
        self.discard(newest)
        return newest


def _slot(member: Member) -> Slot:
    return member.process.host, member.process.pid, member.rank, member.nranks
