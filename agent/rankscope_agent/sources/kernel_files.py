"""Small kernel files (sysfs, procfs): read once, or repeatedly through an open descriptor.

Reading by `pread` on an open descriptor costs a quarter of opening the file each time. `is_stale`
detects files that were replaced or removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rankscope_agent.settings.file_descriptors import raise_if_exhausted

# Sysfs files are regular; anything else there (a pipe, a link to elsewhere) is not followed.
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

MAX_TEXT_BYTES = 4096
"""A sysfs attribute is at most a page."""

_NUMBERS = re.compile(r"(\d+)")


def read_bytes(path: Path | str, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Return the first bytes of a file.

    Raises:
        OSError: it does not exist, is a link, or cannot be read.
    """
    descriptor = os.open(path, FLAGS)
    try:
        parts = []
        while limit > 0 and (part := os.read(descriptor, limit)):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_text(path: Path | str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return a file's text without surrounding white space; empty if it cannot be read.

    Raises:
        OSError: no descriptor is left to open it, which says nothing about the file.
    """
    try:
        return read_bytes(path, limit).decode("utf-8", "replace").strip()
    except OSError as error:
        raise_if_exhausted(error)
        return ""


def read_number(path: Path) -> int | None:
    """Return the whole number in a file; None if there is none or it is negative.

    Raises:
        OSError: no descriptor is left to open it.
    """
    text = read_text(path, 64)
    return int(text) if text.isascii() and text.isdigit() else None


def names_in(folder: Path, limit: int) -> tuple[list[str], int]:
    """Return the names in a directory in natural order, and the number beyond the limit.

    A path that is missing, not a directory, or a loop of links has none.

    Raises:
        OSError: no descriptor is left to open it.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError as error:
        raise_if_exhausted(error)
        return [], 0
    names = natural(names)
    return names[:limit], max(0, len(names) - limit)


def natural(names: Iterable[str]) -> list[str]:
    """Sort names so that mlx5_10 comes after mlx5_9."""
    return sorted(names, key=lambda name: [_part(part) for part in _NUMBERS.split(name)])


def _part(text: str) -> tuple[int, str]:
    return (int(text[:18]), text) if text.isascii() and text.isdigit() else (-1, text)


def resolved(path: Path) -> Path | None:
    """Return the target of links; None if they lead nowhere or in a circle."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def is_stale(descriptor: int) -> bool:
    """Return True if the file behind a kept descriptor has been removed or replaced."""
    try:
        return os.fstat(descriptor).st_nlink == 0
    except OSError:
        return True
