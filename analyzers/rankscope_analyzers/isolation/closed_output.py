"""Ends a command without a message if whoever reads its output has stopped, as `| head` does."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence

CODE = 141
"""The code that shells give a program which SIGPIPE ended; Python ignores that signal."""

OUTPUTS = (1, 2)
"""Descriptors of standard output and standard error."""


def run(command: Callable[[], int]) -> int:
    """Run a command and return its exit code, `CODE` if the reader of its output is gone.

    Raises:
        BrokenPipeError: of another pipe or connection.
    """
    try:
        try:
            return command()
        finally:
            print(end="", flush=True)  # here, not when Python ends and can only complain
    except BrokenPipeError:
        closed = _without_reader()
        if not closed:
            raise
        _discard_rest(closed)
        return CODE


def _without_reader() -> Sequence[int]:
    """Return the outputs that nobody reads any more."""
    poll = select.poll()
    for descriptor in OUTPUTS:
        poll.register(descriptor, 0)
    gone = select.POLLERR | select.POLLHUP
    return [descriptor for descriptor, event in poll.poll(0) if event & gone]


def _discard_rest(outputs: Sequence[int]) -> None:
    """Send what is still buffered nowhere, as Python's documentation of SIGPIPE advises."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in outputs:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
