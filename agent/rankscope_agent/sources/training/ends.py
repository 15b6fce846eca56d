"""When the process that writes a ring ended, to within milliseconds.

Checking a ring's lock once a second shows that a process is gone. If all ranks of a job end within
one second because the first of them did, it does not show which was first. The kernel notifies a
watcher of a file when its writer closes it, in order of occurrence and before the writer's lock is
released (fs/file_table.c, __fput), at no cost as long as nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

IN_CLOSE_WRITE = 0x8
EVENT = struct.Struct("iIII")
MAX_BYTES = 1 << 16

PAUSE_SECONDS = 0.02
"""Pause between two readings of events: a process that keeps opening and closing a file must not
keep the agent busy, and processes that end one after another are further apart than this."""

END_SECONDS = 1.0
"""The thread takes some microseconds to end."""


class EndWatch:
    """Watches open files for writers that close them; without kernel support it reports nothing.

    Args:
        clock: returns the Unix time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._state: _State | None = None
        with suppress(OSError):  # too many watches on this machine
            self._state = _State(clock)
            _start(self, self._state)

    def add(self, descriptor: int) -> int | None:
        """Watch an open file; return the watch's number, None if it cannot be watched."""
        state = self._state
        if state is None:
            return None
        path = f"/proc/self/fd/{descriptor}".encode()
        number: int = state.library.inotify_add_watch(state.descriptor, path, IN_CLOSE_WRITE)
        return number if number >= 0 else None

    def closed_at(self, watch: int | None) -> float | None:
        """Return when a writer last closed a watched file; None if none has since it is watched."""
        if self._state is None or watch is None:
            return None
        self._state.take()
        return self._state.closed.get(watch)

    def remove(self, watch: int | None) -> None:
        """Stop watching a file."""
        if self._state is not None and watch is not None:
            self._state.library.inotify_rm_watch(self._state.descriptor, watch)
            self._state.take()
            self._state.closed.pop(watch, None)


class _State:
    """What the thread that waits for events shares with its callers.

    Raises:
        OSError: the kernel provides no descriptor for it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.closed: dict[int, float] = {}
        self.library = ctypes.CDLL(None, use_errno=True)
        self._clock = clock
        self._lock = threading.Lock()
        self.descriptor: int = self.library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        try:
            self.stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            os.close(self.descriptor)
            raise

    def take(self) -> None:
        """Record the events since the previous call."""
        with self._lock, suppress(BlockingIOError):
            while events := os.read(self.descriptor, MAX_BYTES):
                now, at = self._clock(), 0
                while at < len(events):
                    watch, mask, _, length = EVENT.unpack_from(events, at)
                    at += EVENT.size + length
                    if mask & IN_CLOSE_WRITE:
                        self.closed[watch] = now

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self.descriptor)
        os.close(self.stop)


def _start(owner: EndWatch, state: _State) -> None:
    """Start following events, which ends with the last watch."""
    thread = threading.Thread(target=_follow, args=(state,), name="ring-ends", daemon=True)
    thread.start()
    weakref.finalize(owner, _stop, thread, state.stop).atexit = False


def _stop(thread: threading.Thread, stop: int) -> None:
    """End the thread, which closes its descriptors."""
    os.eventfd_write(stop, 1)
    if thread is not threading.current_thread():
        thread.join(END_SECONDS)


def _follow(state: _State) -> None:
    """Process events as they arrive, until no watch is left."""
    waiting = select.poll()
    waiting.register(state.descriptor, select.POLLIN)
    waiting.register(state.stop, select.POLLIN)
    stopped = select.poll()
    stopped.register(state.stop, select.POLLIN)
    while not any(number == state.stop for number, _ in waiting.poll()):
        state.take()
        stopped.poll(PAUSE_SECONDS * 1000)
    state.close()
