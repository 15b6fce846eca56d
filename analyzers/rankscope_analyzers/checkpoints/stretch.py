"""Ranges of files, which are read by offset and never completely."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankscope_analyzers.checkpoints.problems import FileProblem

CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of bytes of an open file."""

    descriptor: int
    begin: int
    size: int

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes of the range.

        Raises:
            FileProblem: the file cannot be read.
        """
        count = min(count, self.size - offset)
        if offset < 0 or count <= 0:
            return b""
        try:
            return os.pread(self.descriptor, count, self.begin + offset)
        except OSError as error:
            raise FileProblem("unreadable", f"cannot be read: {error.strerror}") from None

    def part(self, offset: int, size: int) -> Stretch:
        """Return a part of it, which must be inside it."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise FileProblem(
                "truncated", f"has {self.size} bytes instead of at least {offset + size}"
            )
        return Stretch(self.descriptor, self.begin + offset, size)

    def chunks(self) -> Iterator[bytes]:
        """Yield all of it, in chunks.

        Raises:
            FileProblem: the file cannot be read, or has become shorter.
        """
        place = 0
        while place < self.size:
            chunk = self.read(place, CHUNK_BYTES)
            if not chunk:
                raise FileProblem("truncated", f"ended at byte {place} while it was read")
            yield chunk
            place += len(chunk)


@contextmanager
def opened(path: Path) -> Iterator[Stretch]:
    """Open a regular file; follow links, and do not wait for pipes and devices.

    Raises:
        FileProblem: it does not exist, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileProblem("missing", "is not there") from None
    except OSError as error:
        raise FileProblem("unreadable", f"cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileProblem("unreadable", "is not a regular file")
        yield Stretch(descriptor, 0, status.st_size)
    finally:
        os.close(descriptor)
