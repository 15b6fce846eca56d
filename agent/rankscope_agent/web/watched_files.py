"""Files that others replace while we run (secrets, certificates): read again on change."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Value = TypeVar("Value")

MAX_BYTES = 1 << 20
"""Largest file read: certificates of a long chain have some ten kilobytes."""

READ_SECONDS = 2.0
"""A file that takes longer does not answer: local ones take microseconds."""

Stamp = tuple[tuple[int, int, int, int] | None, ...]


def read_bounded(path: Path) -> str:
    """Return a small text file; its links are followed, because Kubernetes' volumes are links.

    Raises:
        ValueError: it cannot be read, is too large, or is no UTF-8; the text names it.
    """
    try:
        # Without O_NONBLOCK a FIFO would be waited for until somebody writes into it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} is no regular file")
            body = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(body) > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no UTF-8 text") from None


class Watched(Generic[Value]):
    """A value made of files, made anew whenever one of them was replaced.

    Files may lie on what no longer answers, a network's file system above all. Then one asker waits
    for good, those that come in the next `READ_SECONDS` wait until these are over, and all others
    are told at once.

    Args:
        make: reads the files and makes the value; raises ValueError where that cannot be done.
        paths: the files, looked up anew each time, since links may point elsewhere by then.

    Raises:
        ValueError: the value cannot be made at first.
    """

    def __init__(self, make: Callable[[], Value], paths: Sequence[Path]) -> None:
        self._make = make
        self._paths = tuple(paths)
        self._lock = threading.Lock()
        self._reading_since: float | None = None
        self._stamp = _stamp(self._paths)
        self._value = make()

    def current(self) -> Value:
        """Return the value as the files are now.

        Raises:
            ValueError: the files changed and cannot be used, or do not answer; asked again, they
                are read again.
        """
        if not self._lock.acquire(timeout=self._patience()):
            names = ", ".join(map(str, self._paths))
            raise ValueError(f"{names} cannot be read: no answer for {READ_SECONDS:g} s")
        try:
            self._reading_since = time.monotonic()
            stamp = _stamp(self._paths)
            if stamp != self._stamp:
                self._value = self._make()
                self._stamp = stamp
            return self._value
        finally:
            self._reading_since = None
            self._lock.release()

    def last(self) -> Value:
        """Return the newest value that could be made; nothing is waited for."""
        return self._value

    def _patience(self) -> float:
        """Return for how many seconds another asker is waited for."""
        since = self._reading_since
        waited = 0.0 if since is None else time.monotonic() - since
        return max(0.0, READ_SECONDS - waited)


def _stamp(paths: Sequence[Path]) -> Stamp:
    return tuple(_one(path) for path in paths)


def _one(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
