"""The end of the standard input, by which programs that tests start are asked to stop."""

from __future__ import annotations

import sys
import threading


def end() -> threading.Event:
    """Return an event that is set once the standard input, read by a thread, has ended."""
    ended = threading.Event()

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended
