"""How long a run of a collector may go on with what others can make as much of as they like."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 2.0
"""On the clock, a fifth of a run's deadline. Where pods leave a node no free CPU, or keep its disks
busy, little CPU time takes long, and a run that comes late costs all jobs their series."""

WAITING_SHARE = 0.05
"""What a second of waiting is charged as, in seconds of CPU time: slow disks are somebody's. Whose
turn it was while others had the CPU is chance, and must not count as much as work."""


def time_left(
    cpu_clock: Callable[[], float],
    cpu_seconds: float,
    timer: Callable[[], float] = time.monotonic,
    seconds: float = SECONDS,
) -> Callable[[], bool]:
    """Return what tells, from now on, whether there is time left.

    Args:
        cpu_clock: CPU seconds of the calling thread.
        cpu_seconds: of these, what may be used.
        timer: gives seconds that never go back.
        seconds: of these, likewise.
    """
    cpu_end, end = cpu_clock() + cpu_seconds, timer() + seconds
    return lambda: cpu_clock() < cpu_end and timer() < end


def charging(
    cpu_clock: Callable[[], float], timer: Callable[[], float] = time.monotonic
) -> Callable[[], float]:
    """Return what tells which charge was run up since now, in seconds.

    Args:
        cpu_clock: CPU seconds of the calling thread.
        timer: gives seconds that never go back.
    """
    cpu_began, began = cpu_clock(), timer()
    return lambda: max(cpu_clock() - cpu_began, WAITING_SHARE * (timer() - began))
