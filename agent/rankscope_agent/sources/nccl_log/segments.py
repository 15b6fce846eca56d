"""Reads one log file incrementally: plain or gzip, still growing or rotated.

Files are opened without following links and only if they are regular, because others may write to
their directory. The descriptor is kept, so that a file that is renamed or removed is read to its
end.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

READ_BYTES = 64 << 10
"""Bytes read at a time: below malloc's threshold for mapping new pages (128 KiB), and small enough
to keep a run's time budget to within a millisecond or two."""


class LogRejectedError(Exception):
    """A file that is not read; `reason` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


REASONS = ("symlink", "not_regular", "permission", "unreadable", "too_many")
"""Why files are left out. `symlink` is what cri-dockerd creates in place of logs: the logs are in
/var/lib/docker/containers, which the agent cannot see."""


def open_log(path: Path) -> int:
    """Open a regular file for reading and return its descriptor.

    O_PATH refers to a file without opening it, so that a device put in its place is not touched.

    Raises:
        FileNotFoundError: it is gone.
        LogRejectedError: it is not a regular file, or may not be read.
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
    """One file with its open descriptor, read from an offset on.

    Args:
        descriptor: of the file; closed by `close`.
        offset: bytes of the file that were read before.
        compressed: whether the file is gzip.
    """

    def __init__(self, descriptor: int, offset: int, *, compressed: bool) -> None:
        status = os.fstat(descriptor)
        self.inode = (status.st_dev, status.st_ino)
        self.offset = offset
        self.compressed = compressed
        self.skipped_bytes = 0
        """Number of bytes after damage in an archive."""
        self._descriptor = descriptor
        self._inflate = zlib.decompressobj(wbits=31) if compressed else None
        self._rest = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def left(self) -> int:
        """Return the number of bytes of the file that have not been read yet.

        Raises:
            OSError: the file system does not report its size.
        """
        return max(0, os.fstat(self._descriptor).st_size - self.offset)

    def left_lines(self) -> int:
        """Return an estimate of the line ends that have not been read yet; 0 in an archive.

        They are counted in the next part, and extrapolated to the rest.

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

    def written_at(self) -> float:
        """Return the Unix time at which the file was written last.

        Raises:
            OSError: the file system does not report it.
        """
        return os.fstat(self._descriptor).st_mtime

    def read(self) -> bytes:
        """Return the next bytes of the log; empty at the end for now.

        Raises:
            OSError: the file cannot be read.
        """
        if self._inflate is None:
            data = os.pread(self._descriptor, READ_BYTES, self.offset)
            self.offset += len(data)
            return data
        return self._read_compressed(self._inflate)

    def _read_compressed(self, inflate: zlib._Decompress) -> bytes:
        """Return the next inflated bytes; a damaged or truncated file ends where it is damaged."""
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
