"""Memory of a Dask worker while it judges a trace.

Dask starts workers with MALLOC_TRIM_THRESHOLD_, so that glibc returns freed memory at once
(https://distributed.dask.org/en/stable/worker-memory.html). The thresholds then no longer grow with
what a process frees, as they do elsewhere: the kernel is asked for each array anew, and clearing
its pages takes as long as judging does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD = "MALLOC_TRIM_THRESHOLD_"
"""What Dask sets, in bytes; mallopt(3)."""

MMAP_BYTES = 32 << 20
"""The largest value that glibc's thresholds grow to by themselves on 64 bits; mallopt(3)."""

FIRST_MMAP_BYTES = 128 << 10
"""Their values at the start of a process."""

# Numbers of parameters in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next array until the block ends; return all of it then.

    If Dask did not set the threshold, glibc does so by itself.
    """
    before = os.environ.get(TRIM_THRESHOLD, "")
    library = ctypes.CDLL(None)
    if not before.isdecimal() or not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, MMAP_BYTES)
    library.mallopt(_TRIM_THRESHOLD, 2 * MMAP_BYTES)
    try:
        yield
    finally:
        library.mallopt(_MMAP_THRESHOLD, FIRST_MMAP_BYTES)
        library.mallopt(_TRIM_THRESHOLD, int(before))
        library.malloc_trim(0)
