"""Scans for the rings of a node in a separate thread, while known rings are being read.

Disks that a pod keeps busy, or a file system that hangs, can delay a scan arbitrarily. This only
delays new rings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.sources.training.followed_ring import FollowedRing
from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.format import Reason, RingError

PATIENCE_SECONDS = 1.0
"""How long a run waits for a scan that it started: four times what a scan usually takes."""

FIRST_PATIENCE_SECONDS = 4.0
"""The same while no scan has ended yet: together with the preceding wait for names, less than a
collector's deadline."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The results of the newest completed scan."""

    rings: Sequence[FollowedRing]
    directories: int
    loaded_pods: frozenset[str]
    pods_failure: RingError | None


class BackgroundFollower:
    """Follows rings like `RingFollower`, but does not wait for slow scans; used by one thread.

    Args:
        follower: finds and opens rings.
        timer: returns monotonic seconds.
    """

    def __init__(self, follower: RingFollower, timer: Callable[[], float] = time.monotonic) -> None:
        self._follower = follower
        self._timer = timer
        self._look: _Look | None = None
        self._began = 0.0
        self._found = self._state()
        self._refused = follower.refused()
        self._ended_once = False

    @property
    def rings(self) -> Sequence[FollowedRing]:
        """The rings that are open and known."""
        return self._found.rings if self._look else self._follower.rings

    @property
    def directories(self) -> int:
        """Number of directories of rings that existed and were readable at the last scan."""
        return self._found.directories if self._look else self._follower.directories

    @property
    def loaded_pods(self) -> frozenset[str]:
        """UIDs of the pods in whose volume a probe had written anything at the last scan."""
        return self._found.loaded_pods if self._look else self._follower.loaded_pods

    @property
    def pods_failure(self) -> RingError | None:
        """Why the pods' directory could not be listed at the last scan; None if it could."""
        return self._found.pods_failure if self._look else self._follower.pods_failure

    def refused(self) -> Mapping[Reason, int]:
        """Return the number of refused files and directories, for each reason."""
        if self._look is None:
            self._refused = self._follower.refused()
        return self._refused

    @property
    def late_seconds(self) -> float:
        """How long the current scan has lasted by now; 0 if there is none."""
        return self._timer() - self._began if self._look else 0.0

    @property
    def late_at(self) -> str:
        """The directory that it has reached."""
        return str(self._follower.looking_at)

    def rescan(self, now_unix_seconds: float) -> None:
        """Scan for rings that appeared or disappeared, unless the previous scan is still running.

        Raises:
            Exception: whatever the scan has raised.
            RuntimeError: no thread can be started.
        """
        patience = 0.0
        if self._look is None:
            self._follower.divide(now_unix_seconds)
            self._found = self._state()
            self._began = self._timer()
            look = _Look(self._follower, now_unix_seconds)
            look.start()  # raises at a limit of threads or memory, and is tried again then
            self._look = look
            patience = PATIENCE_SECONDS if self._ended_once else FIRST_PATIENCE_SECONDS
        self._look.join(patience)
        if not self._look.is_alive():
            ended, self._look, self._ended_once = self._look, None, True
            if ended.failure:
                raise ended.failure

    def close_disowned(self, now_unix_seconds: float) -> frozenset[str]:
        """Close the rings that claim another user's job; return these jobs."""
        return frozenset() if self._look else self._follower.close_disowned(now_unix_seconds)

    def close_renamed(self) -> frozenset[tuple[str, str]]:
        """Close pods' rings whose jobs have got another name; return the pods with the old name."""
        return frozenset() if self._look else self._follower.close_renamed()

    def close_finished(self) -> None:
        """Close the rings to which nothing more can be written, unless a scan is running."""
        if self._look is None:
            self._follower.close_finished()

    def give_up(self, followed: FollowedRing, error: OSError, now_unix_seconds: float) -> None:
        """Close a ring that can no longer be read, once no scan is running."""
        if self._look is None:
            self._follower.give_up(followed, error, now_unix_seconds)

    def take_lost(self) -> Sequence[FollowedRing]:
        """Return the rings that are no longer read although their processes may go on."""
        return () if self._look else self._follower.take_lost()

    def _state(self) -> _Found:
        follower = self._follower
        return _Found(
            follower.rings, follower.directories, follower.loaded_pods, follower.pods_failure
        )


class _Look(threading.Thread):
    """One scan for rings; what it raises is kept in `failure`."""

    def __init__(self, follower: RingFollower, now_unix_seconds: float) -> None:
        super().__init__(name="ring-look", daemon=True)
        self._follower = follower
        self._now = now_unix_seconds
        self.failure: Exception | None = None

    def run(self) -> None:
        """Scan once."""
        try:
            self._follower.scan(self._now)
        except Exception as error:  # noqa: BLE001 - raised again where the look is waited for
            self.failure = error
