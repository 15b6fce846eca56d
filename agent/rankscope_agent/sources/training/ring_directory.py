"""One directory of rings that is followed: open, ended and refused rings.

A descriptor is kept as long as its process lives: it survives the removal of the file, and saves
looking the file up every second. It is closed once the process has ended and everything has been
read, because an open file keeps the kubelet from unmounting a deleted pod's volume.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rankscope_agent.contract.fair_shares import Holder
from rankscope_agent.sources.training.cursor import Cursor, locate
from rankscope_agent.sources.training.ends import EndWatch
from rankscope_agent.sources.training.extension import SUFFIX, open_extension
from rankscope_agent.sources.training.files import (
    MAX_RINGS_PER_HOLDER,
    Listing,
    OpenRing,
    RingDirectory,
    RingFile,
    holder_of,
    list_rings,
    open_directory,
    open_ring,
    refuse,
)
from rankscope_agent.sources.training.followed_ring import FollowedRing
from rankscope_agent.sources.training.format import PASSING_REASONS, Reason, RingError
from rankscope_agent.sources.training.listing import Stamp
from rankscope_agent.sources.training.naming import JobNames
from rankscope_agent.sources.training.reported import SUFFIX as SIGNALS_SUFFIX
from rankscope_agent.sources.training.reported import FollowedSignals, open_signals
from rankscope_agent.sources.training.spans import SUFFIX as SPANS_SUFFIX
from rankscope_agent.sources.training.spans import FollowedSpans, open_spans

Beside = TypeVar("Beside")

MAX_REFUSED = 256
"""Refused files remembered per holder, four times the rings read; further ones are too many."""

REFUSED_SECONDS = 60.0
"""How long refused files are left alone in a directory that does not change: a file repaired in
place, which no probe does, is seen that much later."""

Refusal = tuple[Path, RingError]
_Key = tuple[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Done:
    """A ring that is not read any more: the job it was read for, and why it was given up, if so."""

    job_id: str
    refusal: RingError | None


class FollowedDirectory:
    """The rings of one directory; `exists` states whether it was readable at the last scan.

    Ended rings are remembered by name and inode as long as they are listed, so that none is read
    twice.
    """

    def __init__(self, directory: RingDirectory, names: JobNames, ends: EndWatch) -> None:
        self.directory = directory
        self._names = names
        self._ends = ends
        self.exists = False
        self.bare = False
        """It was empty at the last scan, without even a probe's mark that it was loaded."""
        self.turn = 0
        """The number of its newest scan among all of them, 0 before the first."""
        self._namespace = ""
        self._rings: list[FollowedRing] = []
        self._done: dict[_Key, _Done] = {}
        self._lost: list[FollowedRing] = []
        self._refused: dict[str, tuple[RingFile, RingError]] = {}
        self._refused_extensions: list[Refusal] = []
        self._failure: RingError | None = None
        self._left: Counter[Holder] = Counter()
        self._unseen = 0
        self._stamp: Stamp | None = None
        self._settled = False
        self._look_again_at = float("-inf")

    @property
    def rings(self) -> Sequence[FollowedRing]:
        """The rings that are open."""
        return tuple(self._rings)

    def reasons(self) -> Iterator[Reason]:
        """Yield the reason of each current refusal."""
        if self._failure:
            yield self._failure.reason
        yield from (refusal.reason for _, refusal in self._refused.values())
        yield from (done.refusal.reason for done in self._done.values() if done.refusal)
        yield from (followed.refusal.reason for followed in self._rings if followed.refusal)
        yield from itertools.repeat("too_many", self._left.total() + self._unseen)

    @property
    def holder(self) -> Holder:
        """The owner of the directory: its pod, else its user; the shared one has none."""
        owner = self.directory.user
        if not self.directory.pod_uid and owner is None:
            return "", ""
        return holder_of(self.directory, self._pod_namespace(), owner or 0)

    @property
    def open_of(self) -> Counter[Holder]:
        """The number of open rings of each holder."""
        return Counter(followed.ring.holder for followed in self._rings)

    @property
    def wanted(self) -> Mapping[Holder, int]:
        """How many rings each holder could use: those that are open, and those waiting for room."""
        return {
            holder: min(MAX_RINGS_PER_HOLDER, count)
            for holder, count in (self.open_of + self._left).items()
        }

    def shrink(self, holder: Holder, share: int) -> Sequence[Refusal]:
        """Close a holder's rings beyond its share, the last ones first; they stay refused.

        A closed ring is not read again, so that no step of it is counted twice.
        """
        held = [followed for followed in self._rings if followed.ring.holder == holder]
        live_first = sorted(held, key=lambda followed: followed.liveness != "alive")
        seen = f"makes room for others: {share} rings of one pod or user are read now"
        refusals = []
        for followed in live_first[share:]:
            refusal = RingError("too_many", seen)
            self._close(followed, refusal)
            refusals.append((followed.ring.path, refusal))
        return refusals

    def scan(self, limit: int, shares: Mapping[Holder, int], now: float) -> Sequence[Refusal]:
        """Open rings that have appeared, and record those that have disappeared.

        A directory that has not changed since the last scan is not listed again, unless files in it
        are waiting.

        Args:
            limit: how many rings may be opened.
            shares: how many rings of a holder may be open; unlimited for holders that it does not
                contain.
            now: the Unix time.

        Returns:
            The refusals that are new since the last look.
        """
        failed_before, self._failure, self.exists = self._failure is not None, None, False
        try:
            with open_directory(self.directory) as descriptor:
                self.exists = True
                if self._is_unchanged(os.fstat(descriptor), now):
                    return ()
                listing = list_rings(descriptor)
                self.bare = listing.bare
                new = self._admit(descriptor, listing, limit, shares)
                self._plan_next_look(now)
                return new
        except FileNotFoundError:
            self.unlink()
            return ()
        except OSError as error:
            self._failure = refuse(error, self.directory.path)
        except RingError as refusal:
            self._failure = refusal.without_frames()
        return () if failed_before else ((self.directory.path, self._failure),)

    def unlink(self) -> None:
        """Record that the directory is gone; open rings are read to their end."""
        self.exists = self.bare = False
        self._done, self._refused, self._failure = {}, {}, None
        self._left, self._unseen, self._stamp = Counter(), 0, None
        for followed in self._rings:
            followed.linked = False

    def close_finished(self) -> None:
        """Close the rings to which nothing more can be written."""
        for followed in [followed for followed in self._rings if followed.finished]:
            self._close(followed, None)

    def give_up(self, followed: FollowedRing, error: OSError) -> Refusal:
        """Close a ring that can no longer be read; it counts as refused from now on."""
        path = followed.ring.path
        refusal = refuse(error, path)
        self._close(followed, refusal)
        return path, refusal

    def close_disowned(self) -> Iterator[tuple[FollowedRing, RingError]]:
        """Close the rings that claim another user's job, as far as known by now."""
        for followed in tuple(self._rings):
            refusal = None
            with suppress(OSError):  # the next reading asks for its lock, too, and gives it up
                refusal = followed.ring.refusal_of_owner()
            if refusal:
                self._close(followed, refusal)
                yield followed, refusal

    def close_renamed(self) -> frozenset[str]:
        """Close the rings of a pod whose job has another name in Kubernetes than they were given.

        The next scan opens them again under that name, those that have ended as well. Rings whose
        files are gone cannot be opened again and keep their name.

        Returns:
            The names that they had.
        """
        known = self._names.job_of(self.directory.pod_uid) if self._rings or self._done else None
        if known is None:
            return frozenset()
        open_rings = [one for one in self._rings if one.linked and one.job_id != known]
        for followed in open_rings:
            self._rings.remove(followed)
            followed.close()
        ended = {key: done.job_id for key, done in self._done.items() if done.job_id != known}
        for key in ended:
            del self._done[key]
        renamed = frozenset((*(one.job_id for one in open_rings), *ended.values()))
        if renamed:
            self._stamp = None
        return renamed

    def _close(self, followed: FollowedRing, refusal: RingError | None) -> None:
        ring = followed.ring
        self._rings.remove(followed)
        followed.close()
        self._done[ring.name, ring.inode] = _Done(followed.job_id, refusal)
        if refusal is not None:
            self._lost.append(followed)

    def take_lost(self) -> Sequence[FollowedRing]:
        """Return the rings that were closed unfinished since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def _is_unchanged(self, status: os.stat_result, now: float) -> bool:
        """Return True if a directory need not be listed again; otherwise record its state."""
        before, self._stamp = self._stamp, Stamp.of(status)
        # Settled at the previous scan: what that one saw may have been changed right after it.
        unchanged = before == self._stamp and self._settled and now < self._look_again_at
        self._settled = self._stamp.settled(now)
        return unchanged

    def _plan_next_look(self, now: float) -> None:
        """Determine when a directory that does not change must be listed again all the same."""
        waiting = any(refusal.reason in PASSING_REASONS for _, refusal in self._refused.values())
        if waiting or self._left:
            self._look_again_at = now
        else:
            self._look_again_at = now + REFUSED_SECONDS

    def _admit(
        self, descriptor: int, listing: Listing, limit: int, shares: Mapping[Holder, int]
    ) -> Sequence[Refusal]:
        """Compare a listing with the open rings, and open new ones."""
        self._forget_unlisted(listing)
        before, self._refused = self._refused, {}
        left_before = self._left.total() + self._unseen
        self._left, self._unseen = Counter(), listing.too_many
        held, refused = self.open_of, Counter[Holder]()
        for file in self._new_files(listing):
            holder = self._holder(file)
            known = before.get(file.name)
            share = min(MAX_RINGS_PER_HOLDER, shares.get(holder, MAX_RINGS_PER_HOLDER))
            if known and known[0] == file and known[1].reason not in PASSING_REASONS:
                self._refused[file.name] = known
            elif refused[holder] >= MAX_REFUSED:
                self._unseen += 1
            elif limit > 0 and held[holder] < share:
                opened = self._open(descriptor, file)
                limit -= opened
                held[holder] += opened
            else:
                self._left[holder] += 1
            refused[holder] += file.name in self._refused
        return self._new_refusals(before, left_before)

    def _holder(self, file: RingFile) -> Holder:
        """Return in whose share a file counts, as far as known before it is opened."""
        return holder_of(self.directory, self._pod_namespace(), file.user)

    def _pod_namespace(self) -> str:
        """Return the namespace of the directory's pod; empty outside of pods and while unknown."""
        pod_uid = self.directory.pod_uid
        if pod_uid and not self._namespace:
            self._namespace = self._names.namespace_of_pod(pod_uid)
        return self._namespace

    def _forget_unlisted(self, listing: Listing) -> None:
        inodes = {file.inode for file in listing.files}
        keys = {(file.name, file.inode) for file in listing.files}
        for followed in self._rings:
            followed.linked = followed.ring.inode in inodes
        self._done = {key: done for key, done in self._done.items() if key in keys}

    def _new_files(self, listing: Listing) -> Iterator[RingFile]:
        """Yield the files that are neither open, under any name, nor finished."""
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
            self._refused[file.name] = (file, refusal.without_frames())
            return False
        except OSError as error:
            self._refused[file.name] = (file, refuse(error, self.directory.path / file.name))
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
        """Return a ring with its other files, or with the reasons why those are refused."""
        refused: list[RingError] = []

        def opened(suffix: str, call: Callable[[int, OpenRing], Beside | None]) -> Beside | None:
            try:
                return call(descriptor, ring)
            except RingError as refusal:
                refused.append(refusal.without_frames())
                self._refused_extensions.append((ring.path.with_suffix(suffix), refused[-1]))
                return None

        extension = opened(SUFFIX, open_extension)
        found = opened(SPANS_SUFFIX, open_spans)
        table = opened(SIGNALS_SUFFIX, open_signals)
        spans = None if found is None else FollowedSpans(found)
        signals = None if table is None else FollowedSignals(table)
        reason = refused[0] if refused else None
        return FollowedRing(ring, cursor, self._ends, extension, reason, spans, signals)

    def _new_refusals(
        self, before: dict[str, tuple[RingFile, RingError]], left_before: int
    ) -> Sequence[Refusal]:
        """Return the refusals that are new, or have a new reason, since the last scan."""
        new = [
            (self.directory.path / name, refusal)
            for name, (_, refusal) in self._refused.items()
            if name not in before or before[name][1].reason != refusal.reason
        ]
        new += self._refused_extensions
        self._refused_extensions = []
        left = self._left.total() + self._unseen
        if left and not left_before:
            seen = f"contains {left} more files than are read"
            new.append((self.directory.path, RingError("too_many", seen)))
        return new
