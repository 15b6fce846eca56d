"""Pauses Python's cyclic garbage collection while many long-lived objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Do not search for cycles until the block ends.

    The pages of 2,048 nodes are more than a million series. While they are created, Python would
    walk over all of them repeatedly and find nothing, in a third of the total time: nothing here
    refers to itself, so that reference counting frees it.
    """
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()
