"""Keeps the C library from giving each thread memory of its own.

glibc has eight arenas for each core. A new thread takes the arena that was used least, and what it
frees stays there: a thread for each connection leaves the size of its page in one arena after the
other. Besides, freed blocks of some size go back to the system at once, for good; glibc's own
thresholds for that grow as a process frees large blocks.
"""

from __future__ import annotations

import ctypes

ARENAS = 2
"""The main thread's, and one of all others: they hold Python's lock when they ask for memory."""

LARGE_BYTES = 128 << 10
"""glibc's own thresholds at the start of a process."""

# Numbers of parameters in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def limit_arenas() -> bool:
    """Have few arenas, for good; return whether the C library does so (musl has but one)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    few = mallopt(_ARENA_MAX, ARENAS)
    back = mallopt(_TRIM_THRESHOLD, LARGE_BYTES) and mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
    return bool(few and back)
