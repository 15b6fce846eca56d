"""Follows all rings of a node, in its own directory and in its pods' volumes."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rankscope_agent.contract.fair_shares import Holder, allot_to_holders
from rankscope_agent.settings.file_descriptors import share
from rankscope_agent.sources.training.ends import EndWatch
from rankscope_agent.sources.training.files import (
    MAX_RINGS,
    RingDirectory,
    own_directories,
    pod_directories,
    refuse,
)
from rankscope_agent.sources.training.followed_ring import FollowedRing
from rankscope_agent.sources.training.format import REASONS, Reason, RingError
from rankscope_agent.sources.training.naming import NO_PODS, JobNames
from rankscope_agent.sources.training.ring_directory import FollowedDirectory, Refusal
from rankscope_agent.sources.training.scan_turns import ScanTurns

log = logging.getLogger(__name__)

PODS_RESCAN_SECONDS = 5.0
"""Pause between scans for new pod volumes. A new job takes longer than that to its first step, and
a scan costs one system call per pod."""

SCAN_SECONDS = 0.25
"""CPU time that a scan of directories may take; the rest waits for the next scan. A directory with
the maximum number of names takes some 50 milliseconds, a usual one a tenth of one."""

MAX_LOG_LINES = 64
LOG_WINDOW_SECONDS = 600.0
"""Refusals named in the log per ten minutes: a full directory of them, but no flood if files are
repeatedly created and removed under new names."""


FILES_PER_RING = 4
"""The ring, its extension, its spans and its signals."""


def ring_limit() -> int:
    """Return how many rings may be open, each with the other files of its process."""
    return min(MAX_RINGS, share("training") // FILES_PER_RING)


class RingFollower:
    """The rings of a node with open descriptors; used by one thread only.

    Args:
        ring_dir: the node's own directory of rings.
        kubelet: the kubelet's directory, which contains those of pods.
        names: the names of pods' jobs; while they are pending, pods' rings are not read.
        timer: returns monotonic seconds.
        cpu_clock: CPU seconds of the calling thread.
    """

    def __init__(
        self,
        ring_dir: Path,
        kubelet: Path,
        names: JobNames = NO_PODS,
        timer: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._names = names
        self._ends = EndWatch()
        self._ring_dir = ring_dir
        self._pods_path = kubelet / "pods"
        self._kubelet = kubelet
        self._own: dict[RingDirectory, FollowedDirectory] = {}
        self._pods: dict[RingDirectory, FollowedDirectory] = {}
        self._own_turns = ScanTurns(timer, cpu_clock)
        self._pods_turns = ScanTurns(timer, cpu_clock)
        self.looking_at = ring_dir
        """The directory that the current scan has reached."""
        self._pods_seen_at: float | None = None
        self._pods_failure: RingError | None = None
        self._max_rings = ring_limit()
        self._shares: Mapping[Holder, int] = {}
        self._log = _RefusalLog()

    @property
    def rings(self) -> Sequence[FollowedRing]:
        """The rings that are open now, the node's own first."""
        return tuple(followed for directory in self._directories() for followed in directory.rings)

    @property
    def directories(self) -> int:
        """Number of directories of rings that existed and were readable at the last scan."""
        return sum(directory.exists for directory in self._directories())

    @property
    def loaded_pods(self) -> frozenset[str]:
        """UIDs of the pods in whose volume a probe had written anything at the last scan."""
        return frozenset(
            place.pod_uid for place, known in self._pods.items() if known.exists and not known.bare
        )

    @property
    def pods_failure(self) -> RingError | None:
        """Why the pods' directory could not be listed at the last scan; None if it could."""
        return self._pods_failure

    def refused(self) -> Mapping[Reason, int]:
        """Return the number of files and directories currently refused, for each reason."""
        counts = Counter(
            reason for directory in self._directories() for reason in directory.reasons()
        )
        if self._pods_failure:
            counts[self._pods_failure.reason] += 1
        return {reason: counts[reason] for reason in REASONS}

    def rescan(self, now_unix_seconds: float) -> None:
        """Scan for rings that appeared or disappeared; among pods less often than it is called."""
        self.divide(now_unix_seconds)
        self.scan(now_unix_seconds)

    def scan(self, now_unix_seconds: float) -> None:
        """Scan for rings without closing any, so that open ones can be read meanwhile."""
        self.looking_at = self._ring_dir
        self._take(self._own, own_directories(self._ring_dir))
        self._scan(self._own, self._own_turns, now_unix_seconds)
        if not self._names.pending and self._pods_due(now_unix_seconds):
            self._pods_seen_at = now_unix_seconds
            self.looking_at = self._pods_path
            self._find_pods(now_unix_seconds)
            self._scan(self._pods, self._pods_turns, now_unix_seconds)

    def close_disowned(self, now_unix_seconds: float) -> frozenset[str]:
        """Close the rings that have turned out to claim another user's job; return these jobs."""
        jobs = set()
        for directory in self._own.values():
            for followed, refusal in directory.close_disowned():
                jobs.add(followed.ring.header.job_id)
                self._log.write(((followed.ring.path, refusal),), now_unix_seconds)
        return frozenset(jobs)

    def close_renamed(self) -> frozenset[tuple[str, str]]:
        """Close pods' rings whose jobs have got another name, to open them again at the next scan.

        Returns:
            Each pod's UID, with the name that it had so far.
        """
        renamed = frozenset(
            (place.pod_uid, job_id)
            for place, directory in self._pods.items()
            for job_id in directory.close_renamed()
        )
        for pod_uid, job_id in renamed:
            log.info("rings of pod %s are no longer read for job %s", pod_uid, job_id)
        if renamed:
            self._pods_seen_at = None
        return renamed

    def close_finished(self) -> None:
        """Close the rings to which nothing more can be written."""
        for directory in self._directories():
            directory.close_finished()

    def give_up(self, followed: FollowedRing, error: OSError, now_unix_seconds: float) -> None:
        """Close a ring that can no longer be read and count it as refused."""
        for directory in self._directories():
            if followed in directory.rings:
                self._log.write((directory.give_up(followed, error),), now_unix_seconds)

    def take_lost(self) -> Sequence[FollowedRing]:
        """Return the rings that are no longer read although their processes may go on."""
        return [followed for one in self._directories() for followed in one.take_lost()]

    def _directories(self) -> Sequence[FollowedDirectory]:
        return (*self._own.values(), *self._pods.values())

    def _scan(
        self, directories: dict[RingDirectory, FollowedDirectory], turns: ScanTurns, now: float
    ) -> None:
        """Scan directories for as long as there is time, in fair turns."""

        def look(directory: FollowedDirectory) -> None:
            self.looking_at = directory.directory.path
            left = self._max_rings - len(self.rings)
            self._log.write(directory.scan(left, self._shares, now), now)

        turns.take(directories.values(), look, SCAN_SECONDS)

    def divide(self, now: float) -> None:
        """Take back what pods and users have beyond their share, for others that lack it."""
        wanted: Counter[Holder] = Counter()
        for directory in self._directories():
            wanted.update(directory.wanted)
        scarce = wanted.total() > self._max_rings
        self._shares = allot_to_holders(wanted, self._max_rings) if scarce else {}
        for directory in self._directories() if scarce else ():
            for holder, count in directory.open_of.items():
                if count > self._shares[holder]:
                    self._log.write(directory.shrink(holder, self._shares[holder]), now)

    def _pods_due(self, now: float) -> bool:
        seen = self._pods_seen_at
        # A clock that was set back must not stop the scans until it has caught up.
        return seen is None or not seen <= now < seen + PODS_RESCAN_SECONDS

    def _find_pods(self, now: float) -> None:
        """Record volumes that have appeared and disappeared."""
        known_failure = self._pods_failure is not None
        try:
            found = pod_directories(self._kubelet)
        except OSError as error:
            self._pods_failure = refuse(error, self._pods_path)
            if not known_failure:
                self._log.write(((self._pods_path, self._pods_failure),), now)
            return
        self._pods_failure = None
        self._take(self._pods, found)

    def _take(
        self, known: dict[RingDirectory, FollowedDirectory], found: Sequence[RingDirectory]
    ) -> None:
        """Add directories that have appeared, and drop those that have disappeared."""
        for directory in found:
            if directory not in known:
                known[directory] = FollowedDirectory(directory, self._names, self._ends)
        for directory in set(known) - set(found):
            known[directory].unlink()
            if not known[directory].rings:
                del known[directory]


class _RefusalLog:
    """Names refused files in the log, within `MAX_LOG_LINES` per window."""

    def __init__(self) -> None:
        self._window_start = float("-inf")
        self._lines = 0

    def write(self, refusals: Iterable[Refusal], now: float) -> None:
        for path, refusal in refusals:
            if not 0 <= now - self._window_start < LOG_WINDOW_SECONDS:
                self._window_start, self._lines = now, 0
            self._lines += 1
            if self._lines <= MAX_LOG_LINES:
                log.warning("ring %r is refused (%s): %s", str(path), refusal.reason, refusal)
            elif self._lines == MAX_LOG_LINES + 1:
                log.warning("further refused rings are counted and not named for ten minutes")
