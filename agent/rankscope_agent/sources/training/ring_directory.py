"""One directory of rings that is followed: open, ended and refused rings.

A descriptor is kept for as long as its process lives: it survives the file's removal, and spares
the look-up of every second. It is closed once the process has ended and all is read, because an
open file keeps the kubelet from unmounting a deleted pod's volume.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rankscope_agent.sources.training.cursor import Cursor, locate
from rankscope_agent.sources.training.ends import EndWatch
from rankscope_agent.sources.training.extension import SUFFIX, OpenExtension, open_extension
from rankscope_agent.sources.training.files import (
    MAX_RINGS_PER_DIRECTORY,
    NO_PODS,
    JobNames,
    Listing,
    Liveness,
    OpenRing,
    RingDirectory,
    RingFile,
    list_rings,
    open_directory,
    open_ring,
    refuse,
)
from rankscope_agent.sources.training.format import PASSING_REASONS, Reason, RingError, StepRecord

MAX_REFUSED = 256
"""Refused files remembered per directory, four times the rings read; others are too many."""

Refusal = tuple[Path, RingError]
NS = 10**9
_Key = tuple[str, tuple[int, int]]


class FollowedRing:
    """A ring that is read on and on, as it stood at the last look.

    `refusal` says why the extension that lies beside it is not read, `ended_unix_seconds` when its
    process ended: None while it lives, and where it had ended before the first look.
    """

    __slots__ = (
        "_ends", "_extension", "_refusal", "_seen_alive", "_watch", "cursor", "ended_unix_seconds",
        "linked", "liveness", "ring",
    )  # fmt: skip

    def __init__(
        self,
        ring: OpenRing,
        cursor: Cursor,
        extension: OpenExtension | None = None,
        refusal: RingError | None = None,
        ends: EndWatch | None = None,
    ) -> None:
        self.ring = ring
        self.cursor = cursor
        self._extension = extension
        self._refusal = refusal
        self.liveness: Liveness = "alive"
        self.linked = True
        self.ended_unix_seconds: float | None = None
        self._ends = ends or EndWatch()
        self._watch = ends.add(ring.descriptor) if ends else None
        self._seen_alive = False

    @property
    def finished(self) -> bool:
        """Whether nothing more can come from it."""
        ended = self.liveness == "ended" or (self.liveness == "silent" and not self.linked)
        return ended and self.cursor.at_newest

    @property
    def refusal(self) -> RingError | None:
        """Why its extension is not read, None where it is, or where there is none."""
        return self._extension.failure if self._extension else self._refusal

    def close(self) -> None:
        """Close its descriptors."""
        self._ends.remove(self._watch)
        os.close(self.ring.descriptor)
        if self._extension:
            self._extension.close()

    def read(self, now_unix_seconds: float, limit: int) -> Iterator[Sequence[StepRecord]]:
        """Yield what was written since the last look, in batches, up to about `limit` records.

        Raises:
            OSError: the file cannot be read.
        """
        # Asked before reading: what an ended process wrote last is then read as well.
        self.liveness = self.ring.liveness(now_unix_seconds)
        self._note_end(now_unix_seconds)
        for records in self.cursor.read(self.ring.descriptor, limit):
            if self._extension is None:
                yield records
                continue
            now = round(now_unix_seconds * NS) if self.liveness == "alive" else None
            joined = self._extension.join(records, now)
            if joined:
                yield joined
            if len(joined) < len(records):
                self.cursor.next_seq = records[len(joined)].seq
                return

    def _note_end(self, now_unix_seconds: float) -> None:
        if self.liveness == "alive":
            self._seen_alive = True
        elif self._seen_alive and self.liveness == "ended" and self.ended_unix_seconds is None:
            # By the node's clock as it is now: it may have been set since.
            closed = self._ends.closed_at(self._watch)
            self.ended_unix_seconds = now_unix_seconds if closed is None else closed


class FollowedDirectory:
    """The rings of one directory; `exists` says whether it was there and readable at the last look.

    Ended rings are remembered by name and inode for as long as they are listed, so that none is
    read twice.
    """

    def __init__(
        self,
        directory: RingDirectory,
        names: JobNames = NO_PODS,
        ends: EndWatch | None = None,
    ) -> None:
        self.directory = directory
        self._names = names
        self._ends = ends
        self.exists = False
        self._rings: list[FollowedRing] = []
        self._done: dict[_Key, RingError | None] = {}
        self._refused: dict[str, tuple[RingFile, RingError]] = {}
        self._refused_extensions: list[Refusal] = []
        self._failure: RingError | None = None
        self._too_many = 0

    @property
    def rings(self) -> Sequence[FollowedRing]:
        """The rings that are open."""
        return tuple(self._rings)

    def reasons(self) -> Iterator[Reason]:
        """Yield the reason of each refusal that stands."""
        if self._failure:
            yield self._failure.reason
        yield from (refusal.reason for _, refusal in self._refused.values())
        yield from (refusal.reason for refusal in self._done.values() if refusal)
        yield from (followed.refusal.reason for followed in self._rings if followed.refusal)
        yield from itertools.repeat("too_many", self._too_many)

    @property
    def wanted(self) -> int:
        """How many rings it could use a place for: those open, and those left for want of one."""
        return min(MAX_RINGS_PER_DIRECTORY, len(self._rings) + self._too_many)

    def shrink(self, share: int) -> Sequence[Refusal]:
        """Give back the rings beyond a share, those that came last first; they stay refused.

        A ring that is closed is not read again, so that no step of it is counted twice.
        """
        live_first = sorted(self._rings, key=lambda followed: followed.liveness != "alive")
        seen = f"gives its place to other pods: one may have {share} rings now"
        refusals = []
        for followed in live_first[share:]:
            refusal = RingError("too_many", seen)
            self._close(followed, refusal)
            refusals.append((followed.ring.path, refusal))
        return refusals

    def scan(self, limit: int) -> Sequence[Refusal]:
        """Open the rings that have appeared, at most `limit`, and notice those that have gone.

        Returns:
            The refusals that are new since the last look.
        """
        failed_before, self._failure, self.exists = self._failure is not None, None, False
        try:
            with open_directory(self.directory) as descriptor:
                listing = list_rings(descriptor)
                self.exists = True
                return self._admit(descriptor, listing, limit)
        except FileNotFoundError:
            self.unlink()
            return ()
        except OSError as error:
            self._failure = refuse(error, self.directory.path)
        except RingError as refusal:
            self._failure = refusal
        return () if failed_before else ((self.directory.path, self._failure),)

    def unlink(self) -> None:
        """Note that the directory is gone; what is open is read to its end."""
        self.exists = False
        self._done, self._refused, self._failure, self._too_many = {}, {}, None, 0
        for followed in self._rings:
            followed.linked = False

    def close_finished(self) -> None:
        """Close the rings from which nothing more can come."""
        for followed in [followed for followed in self._rings if followed.finished]:
            self._close(followed, None)

    def give_up(self, followed: FollowedRing, error: OSError) -> Refusal:
        """Close a ring that cannot be read any longer; it counts as refused from now on."""
        path = followed.ring.path
        refusal = refuse(error, path)
        self._close(followed, refusal)
        return path, refusal

    def _close(self, followed: FollowedRing, refusal: RingError | None) -> None:
        ring = followed.ring
        self._rings.remove(followed)
        followed.close()
        self._done[ring.name, ring.inode] = refusal

    def _admit(self, descriptor: int, listing: Listing, limit: int) -> Sequence[Refusal]:
        """Compare a listing with what is open, and open what is new."""
        self._forget_unlisted(listing)
        before, self._refused = self._refused, {}
        too_many_before, self._too_many = self._too_many, listing.too_many
        limit = min(limit, MAX_RINGS_PER_DIRECTORY - len(self._rings))
        for file in self._new_files(listing):
            known = before.get(file.name)
            if known and known[0] == file and known[1].reason not in PASSING_REASONS:
                self._refused[file.name] = known
            elif limit > 0 and len(self._refused) < MAX_REFUSED:
                limit -= self._open(descriptor, file)
            else:
                self._too_many += 1
        return self._new_refusals(before, too_many_before)

    def _forget_unlisted(self, listing: Listing) -> None:
        inodes = {file.inode for file in listing.files}
        keys = {(file.name, file.inode) for file in listing.files}
        for followed in self._rings:
            followed.linked = followed.ring.inode in inodes
        self._done = {key: refusal for key, refusal in self._done.items() if key in keys}

    def _new_files(self, listing: Listing) -> Iterator[RingFile]:
        """Yield the files that are neither open, under whatever name, nor done with."""
        opened = {followed.ring.inode for followed in self._rings}
        for file in listing.files:
            if file.inode not in opened and (file.name, file.inode) not in self._done:
                opened.add(file.inode)
                yield file

    def _open(self, descriptor: int, file: RingFile) -> bool:
        """Open a ring or refuse it; return whether it is open."""
        try:
            ring = open_ring(self.directory, descriptor, file.name, self._names)
        except FileNotFoundError:
            return False
        except RingError as refusal:
            self._refused[file.name] = (file, refusal)
            return False
        try:
            cursor = locate(ring.descriptor, ring.header.capacity)
        except OSError as error:
            os.close(ring.descriptor)
            self._refused[file.name] = (file, refuse(error, ring.path))
            return False
        self._rings.append(self._follow(descriptor, ring, cursor))
        return True

    def _follow(self, descriptor: int, ring: OpenRing, cursor: Cursor) -> FollowedRing:
        """Put a ring together with its extension, or with why that is refused."""
        try:
            return FollowedRing(ring, cursor, open_extension(descriptor, ring), ends=self._ends)
        except RingError as refusal:
            self._refused_extensions.append((ring.path.with_suffix(SUFFIX), refusal))
            return FollowedRing(ring, cursor, None, refusal, self._ends)

    def _new_refusals(
        self, before: dict[str, tuple[RingFile, RingError]], too_many_before: int
    ) -> Sequence[Refusal]:
        """Return the refusals that were not there, or for another reason, at the last look."""
        new = [
            (self.directory.path / name, refusal)
            for name, (_, refusal) in self._refused.items()
            if name not in before or before[name][1].reason != refusal.reason
        ]
        new += self._refused_extensions
        self._refused_extensions = []
        if self._too_many and not too_many_before:
            seen = f"holds {self._too_many} more files than are read"
            new.append((self.directory.path, RingError("too_many", seen)))
        return new
