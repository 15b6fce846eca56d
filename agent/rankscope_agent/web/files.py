"""Files that others replace while we run: secrets and certificates, read again when they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Value = TypeVar("Value")

MAX_BYTES = 1 << 20
"""Largest file read: certificates of a long chain have some ten kilobytes."""

Stamp = tuple[tuple[int, int, int, int] | None, ...]


def read_bounded(path: Path) -> str:
    """Return a small text file; its links are followed, because Kubernetes' volumes are links.

    Raises:
        ValueError: it cannot be read, is too large, or is no UTF-8; the text names it.
    """
    try:
        with path.open("rb") as file:
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
        self._stamp = _stamp(self._paths)
        self._value = make()

    def current(self) -> Value:
        """Return the value as the files are now.

        Raises:
            ValueError: the files changed and cannot be used; asked again, they are read again.
        """
        with self._lock:
            stamp = _stamp(self._paths)
            if stamp != self._stamp:
                self._value = self._make()
                self._stamp = stamp
            return self._value

    def last(self) -> Value:
        """Return the newest value that could be made."""
        with self._lock:
            return self._value


def _stamp(paths: Sequence[Path]) -> Stamp:
    return tuple(_one(path) for path in paths)


def _one(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
