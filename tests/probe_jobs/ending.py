"""How the jobs end: without the deadlock that torch's gloo backend may end in."""

from __future__ import annotations

import faulthandler
import signal
import time

DEADLINE_SECONDS = 300
"""A job of trainers takes eight seconds on two free cores, and minutes on very busy ones."""

SETTLE_SECONDS = 0.3
"""Time for a gloo thread to let go of the last collective.

torch 2.13 keeps the caller's thread-local state with every collective, Python objects among it, and
its gloo threads take the interpreter's lock to drop them (`pt_gloo_runloop`: `~AsyncAllreduceWork`,
`~ThreadLocalState`, `ConcretePyInterpreterVTable::decref`). The last reference to a process group
goes with that lock held, and waits there for those threads. 9 of 65 short jobs on a busy machine
hung so. The threads do that without the probe as well.
"""


def settle() -> None:
    """Give gloo's threads the time they need before process groups go."""
    time.sleep(SETTLE_SECONDS)


def end_in_time() -> None:
    """Let this process, which may hang or be left behind by its launcher, live for five minutes."""
    faulthandler.register(signal.SIGALRM, chain=True)  # says where it hung, and dies of it
    signal.alarm(DEADLINE_SECONDS)
