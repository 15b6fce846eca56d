"""Runs a function in a fork of this process, for a limited time."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

RAISED = 99
"""Exit status of a fork in which something was raised."""

PAUSE_SECONDS = 0.005


def in_fork(run: Callable[[], None], seconds: float) -> int | None:
    """Return the exit status of a fork that runs a function, None if it took too long.

    What the fork has started ends with it: it is in a separate process group.
    """
    pid = os.fork()
    if pid == 0:
        _run(run)
    deadline = time.monotonic() + seconds
    done, status = 0, 0
    while not done and time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(PAUSE_SECONDS)
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    if done:
        return os.waitstatus_to_exitcode(status)
    os.waitpid(pid, 0)
    return None


def _run(run: Callable[[], None]) -> None:
    os.setpgid(0, 0)
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - nothing of this copy may go on
        sys.stderr.write(f"{error!r}\n")
        os._exit(RAISED)
    os._exit(0)
