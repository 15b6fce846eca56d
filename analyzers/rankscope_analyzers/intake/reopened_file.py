"""A file that is open only while a part of it is read, for when too many are read at once."""

from __future__ import annotations

import os
import sys

from rankscope_analyzers.text.sanitize import visible


class ReopenedFile:
    """Reads a file from its start, part by part.

    If another file replaces it meanwhile, as logs are rotated, it ends there, and a remark says so.

    Args:
        name: of the file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._offset = 0
        self._identity: tuple[int, int] | None = None

    def read(self, size: int) -> bytes:
        """Return the next bytes, none at the end.

        Raises:
            OSError: it cannot be opened or read.
        """
        try:
            with open(self._name, "rb", buffering=0) as source:  # noqa: PTH123 - unbuffered
                if self._is_another(os.fstat(source.fileno())):
                    return self._ended()
                source.seek(self._offset)
                found = source.read(size)
        except FileNotFoundError:
            if self._identity is None:
                raise
            return self._ended()
        self._offset += len(found)
        return found

    def _is_another(self, status: os.stat_result) -> bool:
        identity = status.st_dev, status.st_ino
        before, self._identity = self._identity or identity, identity
        return identity != before

    def _ended(self) -> bytes:
        sys.stderr.write(f"{visible(self._name)}: was replaced; read up to there\n")
        return b""
