"""Files that others replace while we run (secrets, certificates): reread on change."""

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
"""A file that takes longer does not respond: local ones take microseconds."""

Stamp = tuple[tuple[int, int, int, int] | None, ...]


def read_bounded(path: Path) -> str:
    """Return a small text file; links are followed, because Kubernetes' volumes consist of links.

    Raises:
        ValueError: it cannot be read, is too large, or is not UTF-8; the text names it.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait until someone writes to it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} is not a regular file")
            body = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    if len(body) > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None


class Watched(Generic[Value]):
    """A value built from files, rebuilt whenever one of them has been replaced.

    Files may be on a file system that no longer responds, above all a network's. Then one caller
    waits indefinitely, those that arrive within the next `READ_SECONDS` wait until that time is
    over, and all others get the error at once.

    Args:
        make: reads the files and builds the value; raises ValueError if it cannot.
        paths: the files, looked up again each time, because links may change.

    Raises:
        ValueError: the value cannot be built at first.
    """

    def __init__(self, make: Callable[[], Value], paths: Sequence[Path]) -> None:
        self._make = make
        self._paths = tuple(paths)
        self._lock = threading.Lock()
        self._reading_since: float | None = None
        self._stamp = _stamp(self._paths)
        self._value = make()

    def current(self) -> Value:
        """Return the value of the current files.

        Raises:
            ValueError: the files have changed and are invalid, or do not respond; the next call
                reads them again.
        """
        if not self._lock.acquire(timeout=self._patience()):
            names = ", ".join(map(str, self._paths))
            raise ValueError(f"cannot read {names}: no response within {READ_SECONDS:g} s")
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
        """Return the newest value that could be built, without waiting."""
        return self._value

    def _patience(self) -> float:
        """Return for how many seconds another caller's reading is waited for."""
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
