"""Reads one log file incrementally: plain or gzip, still growing or rotated.

Files are opened without following a link and only if they are regular, as others may write their
directory. The descriptor is kept, so that a file that is renamed or removed is read to its end.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

READ_BYTES = 64 << 10
"""Read at a time: below malloc's threshold for mapping pages anew (128 KiB), and small enough that
a run's time budget is kept to within a millisecond or two."""


class LogRejectedError(Exception):
    """A file is not read; `reason` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


REASONS = ("symlink", "not_regular", "permission", "unreadable", "too_many")
"""Why files are left out. `symlink` is what cri-dockerd puts in place of logs: they lie under
/var/lib/docker/containers, which the agent does not see."""


def open_log(path: Path) -> int:
    """Open a regular file for reading and return its descriptor.

    O_PATH takes hold of a file without opening it, so that a device that is put in its place is not
    touched.

    Raises:
        FileNotFoundError: it is gone.
        LogRejectedError: it is something else, or may not be read.
    """
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LogRejectedError("unreadable") from error
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISLNK(mode):
            raise LogRejectedError("symlink")
        if not stat.S_ISREG(mode):
            raise LogRejectedError("not_regular")
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError as error:
        raise LogRejectedError("permission") from error
    except OSError as error:
        raise LogRejectedError("unreadable") from error
    finally:
        os.close(handle)


class Segment:
    """One file under an open descriptor, read from an offset on.

    Args:
        descriptor: of the file; closed by `close`.
        offset: bytes of the file that were read before.
        compressed: the file is gzip.
    """

    def __init__(self, descriptor: int, offset: int, *, compressed: bool) -> None:
        status = os.fstat(descriptor)
        self.inode = (status.st_dev, status.st_ino)
        self.offset = offset
        self.compressed = compressed
        self.skipped_bytes = 0
        """Bytes behind damage in an archive."""
        self._descriptor = descriptor
        self._inflate = zlib.decompressobj(wbits=31) if compressed else None
        self._rest = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def left(self) -> int:
        """Return the bytes of the file that are not read yet.

        Raises:
            OSError: the file system cannot say.
        """
        return max(0, os.fstat(self._descriptor).st_size - self.offset)

    def left_lines(self) -> int:
        """Return about how many line ends are not read yet, none in an archive.

        They are counted in what comes next, and taken to be as frequent in the rest.

        Raises:
            OSError: the file cannot be read.
        """
        if self.compressed:
            return 0
        sample = os.pread(self._descriptor, READ_BYTES, self.offset)
        return round(sample.count(b"\n") * self.left() / len(sample)) if sample else 0

    def truncated(self) -> bool:
        """Return True if the file is shorter than what was read of it: it was truncated."""
        return os.fstat(self._descriptor).st_size < self.offset

    def read(self) -> bytes:
        """Return the next bytes of the log, none at the end for now.

        Raises:
            OSError: the file cannot be read.
        """
        if self._inflate is None:
            data = os.pread(self._descriptor, READ_BYTES, self.offset)
            self.offset += len(data)
            return data
        return self._read_compressed(self._inflate)

    def _read_compressed(self, inflate: zlib._Decompress) -> bytes:
        """Return the next inflated bytes; a damaged or cut off file ends where it is damaged."""
        data = self._rest
        if not data:
            data = os.pread(self._descriptor, READ_BYTES, self.offset)
            self.offset += len(data)
        try:
            text = inflate.decompress(data, READ_BYTES)
        except zlib.error:
            self.skipped_bytes += len(data) + self.left()
            self.offset += self.left()
            self._rest = b""
            return b""
        self._rest = inflate.unconsumed_tail
        return text
