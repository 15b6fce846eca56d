"""Calls whose native code may end the process: in a forked child, which answers with numbers."""

from __future__ import annotations

import os
import resource
import signal
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np


class ChildEndedError(Exception):
    """The child has ended without an answer; the message states how."""


def numbers_of(call: Callable[[], Sequence[int]]) -> Sequence[int]:
    """Return what a function returns that may end the process which calls it.

    Args:
        call: touches only what the process has open, and starts no threads.

    Raises:
        ChildEndedError: it raised, or ended the child.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Since Python 3.12 for processes with threads: what those may hold, the child does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _answer(call, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise ChildEndedError(f"ended by {signal.Signals(os.WTERMSIG(status)).name}")
    if status:
        raise ChildEndedError("stopped by an error")
    return [int(number) for number in np.frombuffer(answer, dtype=np.int64)]


def _answer(call: Callable[[], Sequence[int]], writer: int) -> NoReturn:
    """Write what the function returns, and end this process, whatever is raised."""
    code = 1
    try:
        _die_quietly()
        os.write(writer, np.array(call(), dtype=np.int64).tobytes())
        code = 0
    finally:
        os._exit(code)


def _die_quietly() -> None:
    """Have faults of native code neither write to the terminal nor leave a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for fault in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        signal.signal(fault, signal.SIG_DFL)
