"""Which directory is scanned next if there is no time for all of them.

The time is divided among namespaces, and outside of pods among users, each of whom is charged for
the time of its directories. So one that fills twenty of them waits behind everyone else's,
including newcomers, and gets the time that they leave.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from rankscope_agent.sources.run_time import charging, time_left
from rankscope_agent.sources.training.ring_directory import FollowedDirectory

SMALLEST_SECONDS = 1e-6
"""A charge below this is forgotten: a quarter of a second lasts for 18 rounds, which is longer than
a pod takes to be replaced."""


class ScanTurns:
    """Gives directories their turns, round by round.

    Args:
        timer: returns monotonic seconds.
        cpu_clock: CPU seconds of the calling thread.
    """

    def __init__(
        self, timer: Callable[[], float], cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._timer = timer
        self._cpu_clock = cpu_clock
        self._charged: dict[str, float] = {}
        self._turn = 0

    def take(
        self,
        directories: Iterable[FollowedDirectory],
        look: Callable[[FollowedDirectory], None],
        seconds: float,
    ) -> None:
        """Scan directories for so much CPU time, at least one of them.

        The one charged least so far comes next; of one namespace or user, new directories come
        first, then those that have waited longest. Charges are halved with every round.
        """
        in_time = time_left(self._cpu_clock, seconds, self._timer)
        halved = {group: charge / 2 for group, charge in self._charged.items()}
        self._charged = {group: rest for group, rest in halved.items() if rest > SMALLEST_SECONDS}
        groups: dict[str, deque[FollowedDirectory]] = defaultdict(deque)
        for directory in sorted(directories, key=lambda one: one.turn):
            groups[directory.holder[0]].append(directory)
        least_first = [(self._charged.get(group, 0.0), group) for group in groups]
        heapq.heapify(least_first)
        first = True
        while least_first and (first or in_time()):
            first = False
            charge, group = least_first[0]
            charge += self._serve(groups[group].popleft(), look)
            self._charged[group] = charge
            if groups[group]:
                heapq.heapreplace(least_first, (charge, group))
            else:
                heapq.heappop(least_first)

    def _serve(
        self, directory: FollowedDirectory, look: Callable[[FollowedDirectory], None]
    ) -> float:
        """Give a directory its turn; return its charge."""
        charge = charging(self._cpu_clock, self._timer)
        self._turn += 1
        directory.turn = self._turn
        look(directory)
        return charge()
