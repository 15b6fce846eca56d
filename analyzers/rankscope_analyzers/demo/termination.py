"""Ends a command on SIGTERM and SIGHUP as on Ctrl-C, so that what it started ends with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupting() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block at the first signal that is to stop the command.

    A signal that is ignored, as SIGHUP under nohup, remains ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # Python allows no handler there
        yield
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    replaced = [number for number in STOPPING if before[number] == signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in STOPPING:  # `timeout` sends two: the second must not interrupt cleaning up
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, _pass)
    raise KeyboardInterrupt


def _pass(_number: int, _frame: FrameType | None) -> None:
    """Do nothing. Python complains about SIG_IGN if the signal has just arrived."""
