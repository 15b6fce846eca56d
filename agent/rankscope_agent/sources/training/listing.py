"""The newest rings of directories, of which large ones are not listed again and again.

A pod can fill its volume with thousands of names, and change one of them at any moment. A directory
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
"""Names in a directory from which on its listing is kept: some tenths of a millisecond of work."""

NEWEST = 2 * MAX_RINGS_PER_HOLDER
"""Files returned for each user: twice what is read, as there may be others among them."""

LISTING_SECONDS = 0.1
"""CPU time of listing for one question: ten directories of as many names as are looked at. A thread
that waits for the processor, or for other threads, must not leave out what it has not reached."""

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


@dataclass(frozen=True, slots=True)
class _Kept:
    """The newest files of a large directory, when it was listed."""

    stamp: Stamp
    files: Sequence[RingFile]
    settled: bool


class RingListings:
    """Listings of large directories that are kept; may be asked by any thread.

    Args:
        timer: gives the CPU seconds of the thread that asks.
    """

    def __init__(self, timer: Callable[[], float] = time.thread_time) -> None:
        self._timer = timer
        self._kept: dict[RingDirectory, _Kept] = {}

    def newest(
        self, directories: Sequence[RingDirectory], now_unix_seconds: float
    ) -> Iterator[tuple[RingDirectory, int, Sequence[RingFile]]]:
        """Yield directories under an open descriptor, with the newest files of each user.

        Those that were large come last. What is not reached in time is taken to be as it was, and
        left out where it has not been listed yet; the next question begins with that.
        """
        before, until = self._kept, self._timer() + LISTING_SECONDS
        self._kept = {place: before[place] for place in directories if place in before}
        # The order of what is kept is that in which it was listed, the oldest first.
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
    """Yield files in their order, of each user at most so many."""
    seen: Counter[int] = Counter()
    for file in files:
        seen[file.user] += 1
        if seen[file.user] <= most:
            yield file
