"""Limits the duration of a collector's run whose amount of work others can choose."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 2.0
"""Wall-clock limit, a fifth of a run's deadline. Where pods leave a node no free CPU or keep its
disks busy, little CPU time takes long, and a late run costs all jobs their series."""

WAITING_SHARE = 0.05
"""CPU seconds charged for a second of waiting: a slow disk is the fault of the item being read.
Which item is being read while others use the CPU is chance, and must count for less than work."""


def time_left(
    cpu_clock: Callable[[], float],
    cpu_seconds: float,
    timer: Callable[[], float] = time.monotonic,
    seconds: float = SECONDS,
) -> Callable[[], bool]:
    """Return a function that returns True while there is time left, counted from now.

    Args:
        cpu_clock: returns the CPU seconds of the calling thread.
        cpu_seconds: limit on CPU time.
        timer: returns monotonic seconds.
        seconds: limit on elapsed time.
    """
    cpu_end, end = cpu_clock() + cpu_seconds, timer() + seconds
    return lambda: cpu_clock() < cpu_end and timer() < end


def charging(
    cpu_clock: Callable[[], float], timer: Callable[[], float] = time.monotonic
) -> Callable[[], float]:
    """Return a function that returns the charge accumulated since now, in seconds.

    Args:
        cpu_clock: returns the CPU seconds of the calling thread.
        timer: returns monotonic seconds.
    """
    cpu_began, began = cpu_clock(), timer()
    return lambda: max(cpu_clock() - cpu_began, WAITING_SHARE * (timer() - began))
