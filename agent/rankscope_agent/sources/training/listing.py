"""The newest rings of directories, listed again only when a large directory has changed.

A pod can fill its volume with thousands of names; looking at each of them again and again is what
this spares. A directory of usual size is listed each time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_agent.sources.training.files import (
    MAX_RINGS_PER_HOLDER,
    RingDirectory,
    RingFile,
    list_rings,
    newest_of_each,
)

LARGE = 4 * MAX_RINGS_PER_HOLDER
"""Names in a directory from which on its listing is kept: some tenths of a millisecond of work."""

NEWEST = 2 * MAX_RINGS_PER_HOLDER
"""Files returned for each user: twice what is read, as there may be others among them."""

SETTLED_SECONDS = 2.0
"""A directory that was changed less long ago may change once more without another time of change,
which some file systems give in whole seconds."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes with a directory: its inode, and when names and anything of it were changed."""

    inode: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a directory."""
        return cls(status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

    def settled(self, now_unix_seconds: float) -> bool:
        """Return True if another change from now on would make it another stamp."""
        return now_unix_seconds - max(self.modified_ns, self.changed_ns) / 1e9 > SETTLED_SECONDS


class RingListings:
    """Listings of large directories that are kept; may be asked by any thread."""

    def __init__(self) -> None:
        self._kept: dict[RingDirectory, tuple[Stamp, Sequence[RingFile]]] = {}

    def newest(
        self, directory: RingDirectory, descriptor: int, now_unix_seconds: float
    ) -> Sequence[RingFile]:
        """Return the newest files of each user in an open directory, `NEWEST` of each at most.

        Raises:
            OSError: the directory cannot be read.
        """
        stamp = Stamp.of(os.fstat(descriptor))
        kept = self._kept.get(directory)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        files = list_rings(descriptor).files
        newest = tuple(newest_of_each(files, NEWEST))
        if len(files) >= LARGE and stamp.settled(now_unix_seconds):
            self._kept[directory] = stamp, newest
        return newest

    def keep_only(self, directories: Sequence[RingDirectory]) -> None:
        """Forget the other directories."""
        present = set(directories)
        self._kept = {place: one for place, one in tuple(self._kept.items()) if place in present}
