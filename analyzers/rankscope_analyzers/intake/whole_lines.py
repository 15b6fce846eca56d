"""A regular file read in parts that end with a line, so that no line has to be put together."""

from __future__ import annotations

import os
from io import FileIO

LOOK_BYTES = 4096
"""Bytes in which a line's end is looked for: reading these twice costs a twentieth of copying each
part. Where there is none, a part ends in the middle of a line."""


class WholeLines:
    """Reads on in parts whose lines end where they would in parts of equal sizes.

    A part without the line that its end would cut is followed by one that begins with this line:
    the complete lines known after each part are the same.

    Args:
        source: an unbuffered regular file, of which `offset` bytes have been read.
        offset: a multiple of the parts' size.
    """

    def __init__(self, source: FileIO, offset: int) -> None:
        self._source = source
        self._offset = offset
        self._limit = offset

    def read(self, size: int) -> bytes:
        """Return the next bytes, up to `size` beyond where the last part of that size would end.

        Raises:
            OSError: it cannot be read.
        """
        self._limit += size
        look = max(self._offset, self._limit - LOOK_BYTES)
        line_end = os.pread(self._source.fileno(), self._limit - look, look).rfind(b"\n") + 1
        end = look + line_end if line_end else self._limit
        part = self._source.read(end - self._offset)
        self._offset += len(part)
        return part
