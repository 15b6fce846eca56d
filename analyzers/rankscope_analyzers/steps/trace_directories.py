"""The location of a trace: a directory on disk, or the address of one in an object store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StoredDirectory:
    """A directory of an object store.

    Args:
        url: its address, without a slash at the end.
    """

    url: str

    @property
    def name(self) -> str:
        """Return the last part of the address."""
        return self.url.rpartition("/")[2]

    def __str__(self) -> str:
        return self.url


Directory = Path | StoredDirectory


def directory(text: str) -> Directory:
    """Return what an argument refers to: an address if it has a scheme, else a path."""
    return StoredDirectory(text.rstrip("/")) if "://" in text else Path(text)
