"""Follows all rings of a node, in its own directory and in its pods' volumes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rankscope_agent.settings.file_descriptors import share
from rankscope_agent.sources.training.ends import EndWatch
from rankscope_agent.sources.training.files import (
    MAX_RINGS,
    NO_PODS,
    JobNames,
    RingDirectory,
    pod_directories,
    refuse,
)
from rankscope_agent.sources.training.format import REASONS, Reason, RingError
from rankscope_agent.sources.training.ring_directory import FollowedDirectory, FollowedRing, Refusal
from rankscope_agent.sources.training.shares import fair_share

log = logging.getLogger(__name__)

PODS_RESCAN_SECONDS = 5.0
"""Pause between looks for new pod volumes. A new job takes longer than that to its first step, and
the look costs one system call per pod."""

MAX_LOG_LINES = 64
LOG_WINDOW_SECONDS = 600.0
"""Refusals named in the log per ten minutes: a full directory of them, and no flood whoever makes
and removes files under new names."""


def ring_limit() -> int:
    """Return how many rings may be open, each with its extension."""
    return min(MAX_RINGS, share("training") // 2)


class RingFollower:
    """The rings of a node under open descriptors; used by one thread only.

    Args:
        ring_dir: the node's own directory of rings.
        kubelet: the kubelet's directory, under which pods have theirs.
        names: what pods' jobs are called; while that is pending, pods' rings wait unread.
    """

    def __init__(self, ring_dir: Path, kubelet: Path, names: JobNames = NO_PODS) -> None:
        self._names = names
        self._ends = EndWatch()
        self._own = FollowedDirectory(RingDirectory(ring_dir, (), ""), names, self._ends)
        self._pods_path = kubelet / "pods"
        self._kubelet = kubelet
        self._pods: dict[RingDirectory, FollowedDirectory] = {}
        self._pods_seen_at: float | None = None
        self._pods_failure: RingError | None = None
        self._max_rings = ring_limit()
        self._share = self._max_rings
        self._log = _RefusalLog()

    @property
    def rings(self) -> Sequence[FollowedRing]:
        """The rings that are open now, the node's own first."""
        return tuple(followed for directory in self._directories() for followed in directory.rings)

    @property
    def directories(self) -> int:
        """How many directories of rings were there and readable at the last look."""
        return sum(directory.exists for directory in self._directories())

    @property
    def pods_failure(self) -> RingError | None:
        """Why the pods' directory could not be listed at the last look, None where it could."""
        return self._pods_failure

    def refused(self) -> Mapping[Reason, int]:
        """Count the files and directories refused now, for every reason there is."""
        counts = Counter(
            reason for directory in self._directories() for reason in directory.reasons()
        )
        if self._pods_failure:
            counts[self._pods_failure.reason] += 1
        return {reason: counts[reason] for reason in REASONS}

    def rescan(self, now_unix_seconds: float) -> None:
        """Look for rings that have appeared or gone; among pods less often than it is called."""
        self._divide(now_unix_seconds)
        self._scan((self._own,), now_unix_seconds)
        if not self._names.pending and self._pods_due(now_unix_seconds):
            self._pods_seen_at = now_unix_seconds
            self._find_pods(now_unix_seconds)
            self._scan(tuple(self._pods.values()), now_unix_seconds)

    def close_finished(self) -> None:
        """Close the rings from which nothing more can come."""
        for directory in self._directories():
            directory.close_finished()

    def give_up(self, followed: FollowedRing, error: OSError, now_unix_seconds: float) -> None:
        """Close a ring that cannot be read any longer and count it as refused."""
        for directory in self._directories():
            if followed in directory.rings:
                self._log.write((directory.give_up(followed, error),), now_unix_seconds)

    def _directories(self) -> Sequence[FollowedDirectory]:
        return (self._own, *self._pods.values())

    def _scan(self, directories: Iterable[FollowedDirectory], now: float) -> None:
        left = self._max_rings - len(self.rings)
        for directory in directories:
            before = len(directory.rings)
            self._log.write(directory.scan(min(left, self._share - before)), now)
            left -= len(directory.rings) - before

    def _divide(self, now: float) -> None:
        """Take back what directories have beyond their share, for those that lack a place."""
        wanted = [one.wanted for one in self._directories() if one.wanted]
        self._share = fair_share(wanted, self._max_rings)
        for directory in self._directories():
            if len(directory.rings) > self._share:
                self._log.write(directory.shrink(self._share), now)

    def _pods_due(self, now: float) -> bool:
        seen = self._pods_seen_at
        # A clock that was set back must not stop the looks until it has caught up.
        return seen is None or not seen <= now < seen + PODS_RESCAN_SECONDS

    def _find_pods(self, now: float) -> None:
        """Record volumes that have come and gone."""
        known_failure = self._pods_failure is not None
        try:
            found = pod_directories(self._kubelet)
        except OSError as error:
            self._pods_failure = refuse(error, self._pods_path)
            if not known_failure:
                self._log.write(((self._pods_path, self._pods_failure),), now)
            return
        self._pods_failure = None
        for directory in found:
            if directory not in self._pods:
                self._pods[directory] = FollowedDirectory(directory, self._names, self._ends)
        for directory in set(self._pods) - set(found):
            self._pods[directory].unlink()
            if not self._pods[directory].rings:
                del self._pods[directory]


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
