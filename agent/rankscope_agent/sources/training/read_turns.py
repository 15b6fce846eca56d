"""Which ring is read next if there is no time for all of them.

Namespaces, and outside of pods users, are charged for the time that their rings take, and so is
each pod within its namespace: the one charged least comes next. Rings that are rewritten endlessly
use what the others leave, and a new one is read at once.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from rankscope_agent.contract.fair_shares import Holder
from rankscope_agent.sources.run_time import charging, time_left
from rankscope_agent.sources.training.followed_ring import FollowedRing

CPU_SECONDS = 0.1
"""CPU time of one run: a tenth of a core if there is always something to read. Sixteen ranks with a
step per second take a hundredth of that; the full rings of a node of eight GPUs are read within ten
runs."""

SECONDS = 1.0
"""The same in elapsed time. Disks that a pod keeps busy, and a node without a free CPU, must not
delay a run: that would cost all ranks their series."""

ONCE_SECONDS = 5.0
"""Both for an agent that runs once, half of the run's deadline: no later run reads the rest."""

SMALLEST_SECONDS = 1e-6
"""A charge below this is forgotten; one of a whole run lasts for twenty runs."""


@dataclass(slots=True)
class _Queue:
    """The rings of one holder that wait for their turn."""

    holder: Holder
    rings: deque[FollowedRing] = field(default_factory=deque)


class ReadTurns:
    """Gives rings their turns, run by run, within a time limit.

    Args:
        cpu_clock: CPU seconds of the calling thread.
        timer: returns monotonic seconds.
        once: there is a single run.
    """

    def __init__(
        self,
        cpu_clock: Callable[[], float] = time.thread_time,
        timer: Callable[[], float] = time.monotonic,
        *,
        once: bool = False,
    ) -> None:
        self._cpu_clock = cpu_clock
        self._timer = timer
        self._limits = (ONCE_SECONDS, ONCE_SECONDS) if once else (CPU_SECONDS, SECONDS)
        self._charged: dict[Hashable, float] = {}
        self._turn = 0

    def take(self, rings: Iterable[FollowedRing], read: Callable[[FollowedRing], bool]) -> None:
        """Read rings until none has more or the time is over, at least one of them.

        Of one pod or user the ring comes first whose last turn was longest ago. Charges are halved
        with every run.

        Args:
            rings: the open rings.
            read: reads a piece of one and returns whether it wants another turn.
        """
        cpu_seconds, seconds = self._limits
        in_time = time_left(self._cpu_clock, cpu_seconds, self._timer, seconds)
        halved = {one: charge / 2 for one, charge in self._charged.items()}
        self._charged = {one: rest for one, rest in halved.items() if rest > SMALLEST_SECONDS}
        groups = self._queues(rings)
        order = [(self._charged.get(name, 0.0), name) for name in groups]
        heapq.heapify(order)
        first = True
        while order and (first or in_time()):
            first = False
            name = order[0][1]
            charge = self._serve(groups[name], read)
            self._charged[name] = self._charged.get(name, 0.0) + charge
            if groups[name]:
                heapq.heapreplace(order, (self._charged[name], name))
            else:
                heapq.heappop(order)

    def _queues(self, rings: Iterable[FollowedRing]) -> dict[str, list[tuple[float, str, _Queue]]]:
        """Return for each group a heap of its holders, the one charged least first."""
        queues: dict[Holder, _Queue] = {}
        for ring in sorted(rings, key=lambda one: one.turn):
            holder = ring.ring.holder
            queues.setdefault(holder, _Queue(holder)).rings.append(ring)
        groups: dict[str, list[tuple[float, str, _Queue]]] = {}
        for (group, name), queue in queues.items():
            charge = self._charged.get((group, name), 0.0)
            groups.setdefault(group, []).append((charge, name, queue))
        for heap in groups.values():
            heapq.heapify(heap)
        return groups

    def _serve(
        self, holders: list[tuple[float, str, _Queue]], read: Callable[[FollowedRing], bool]
    ) -> float:
        """Give a ring of a group its turn; return its charge."""
        charge, name, queue = holders[0]
        charged = charging(self._cpu_clock, self._timer)
        ring = queue.rings.popleft()
        self._turn += 1
        ring.turn = self._turn
        if read(ring):
            queue.rings.append(ring)
        taken = charged()
        self._charged[queue.holder] = charge + taken
        if queue.rings:
            heapq.heapreplace(holders, (charge + taken, name, queue))
        else:
            heapq.heappop(holders)
        return taken
