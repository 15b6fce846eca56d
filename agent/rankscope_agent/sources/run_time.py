"""How long a run of a collector may go on with what others can make as much of as they like."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 2.0
"""On the clock, a fifth of a run's deadline. Where pods leave a node no free CPU, or keep its disks
busy, little CPU time takes long, and a run that comes late costs all jobs their series."""


def time_left(
    cpu_clock: Callable[[], float],
    cpu_seconds: float,
    timer: Callable[[], float] = time.monotonic,
) -> Callable[[], bool]:
    """Return what tells, from now on, whether there is time left.

    Args:
        cpu_clock: CPU seconds of the calling thread.
        cpu_seconds: of these, what may be used.
        timer: gives seconds that never go back.
    """
    cpu_end, end = cpu_clock() + cpu_seconds, timer() + SECONDS
    return lambda: cpu_clock() < cpu_end and timer() < end
