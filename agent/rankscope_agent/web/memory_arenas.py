"""Keeps the C library from giving each thread its own memory arena.

glibc has eight arenas per core. A new thread takes the least used arena, and what it frees stays
there: with a thread per connection, page-sized blocks accumulate in one arena after another.
Besides, large freed blocks should be returned to the system at once; glibc's own thresholds for
that grow as a process frees large blocks.
"""

from __future__ import annotations

import ctypes

ARENAS = 2
"""The main thread's arena, and one for all others, which hold Python's lock when they allocate."""

LARGE_BYTES = 128 << 10
"""glibc's own thresholds at the start of a process."""

# Numbers of parameters in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def limit_arenas() -> bool:
    """Limit the arenas for good; return whether the C library supports it (musl has only one)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    few = mallopt(_ARENA_MAX, ARENAS)
    back = mallopt(_TRIM_THRESHOLD, LARGE_BYTES) and mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
    return bool(few and back)
