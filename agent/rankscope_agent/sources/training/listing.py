"""The newest rings of directories; large directories are not listed each time.

A pod can fill its volume with thousands of names, and change one of them at any time. A directory
of usual size is listed each time.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rankscope_agent.sources.training.files import (
    MAX_RINGS_PER_HOLDER,
    RingDirectory,
    RingFile,
    list_rings,
    open_directory,
)
from rankscope_agent.sources.training.format import HEADER_SIZE, RingError

LARGE = 4 * MAX_RINGS_PER_HOLDER
"""Number of names in a directory from which on its listing is cached: two milliseconds of work."""

NEWEST = 2 * MAX_RINGS_PER_HOLDER
"""Files returned per user: twice what is read, because some may not be rings."""

LISTING_SECONDS = 0.1
"""CPU time for listings per query: three directories of the maximum number of names. A thread that
waits for the processor, or for other threads, must not skip what it has not reached."""

SETTLED_SECONDS = 2.0
"""A directory or file that was changed more recently than this may change again without a new time
of change, which some file systems store in whole seconds."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes with a directory: its inode, and when its names and metadata were changed."""

    inode: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a directory."""
        return cls(status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

    def settled(self, now_unix_seconds: float) -> bool:
        """Return True if any change from now on would result in another stamp."""
        return now_unix_seconds - max(self.modified_ns, self.changed_ns) / 1e9 > SETTLED_SECONDS


@dataclass(frozen=True, slots=True)
class _Kept:
    """The newest files of a large directory when it was listed."""

    stamp: Stamp
    files: Sequence[RingFile]
    settled: bool


class RingListings:
    """Cached listings of large directories; may be queried by any thread.

    Args:
        timer: returns the CPU seconds of the calling thread.
    """

    def __init__(self, timer: Callable[[], float] = time.thread_time) -> None:
        self._timer = timer
        self._kept: dict[RingDirectory, _Kept] = {}

    def newest(
        self, directories: Sequence[RingDirectory], now_unix_seconds: float
    ) -> Iterator[tuple[RingDirectory, int, Sequence[RingFile]]]:
        """Yield directories with open descriptors, with the newest files of each user.

        Large ones come last. Those that are not reached in time are assumed to be unchanged, and
        left out if they have never been listed; the next query starts with them.
        """
        before, until = self._kept, self._timer() + LISTING_SECONDS
        self._kept = {place: before[place] for place in directories if place in before}
        # The cache is in the order of listing, the oldest first.
        waited = {place: turn for turn, place in enumerate(before)}
        for place in sorted(directories, key=lambda place: waited.get(place, -1)):
            with suppress(OSError, RingError), open_directory(place) as descriptor:
                files = self._files(place, descriptor, now_unix_seconds, self._timer() < until)
                yield place, descriptor, files

    def _files(
        self, place: RingDirectory, descriptor: int, now: float, in_time: bool
    ) -> Sequence[RingFile]:
        kept = self._kept.get(place)
        stamp = Stamp.of(os.fstat(descriptor))
        if kept is not None and (not in_time or (kept.settled and kept.stamp == stamp)):
            return kept.files
        if not in_time:
            return ()
        files = list_rings(descriptor).files
        newest = tuple(newest_of_each((file for file in files if _may_be_ring(file)), NEWEST))
        self._kept.pop(place, None)
        if len(files) >= LARGE:
            self._kept[place] = _Kept(stamp, newest, stamp.settled(now))
        return newest


def _may_be_ring(file: RingFile) -> bool:
    return file.changed[1] >= HEADER_SIZE


def newest_of_each(files: Iterable[RingFile], most: int) -> Iterator[RingFile]:
    """Yield files in order, at most so many per user."""
    seen: Counter[int] = Counter()
    for file in files:
        seen[file.user] += 1
        if seen[file.user] <= most:
            yield file
