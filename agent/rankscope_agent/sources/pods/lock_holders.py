"""The process that holds the lock of a file, from /proc/locks, and its owner.

None of this requires a privilege: a visible process shows its owner.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.pods.cgroups import MAX_CGROUP_BYTES, parse_cgroup

MAX_LOCKS_BYTES = 1 << 20  # some 15,000 locks
MAX_STATUS_BYTES = 16384

LOOK_SECONDS = 5.0
"""How long what is known about locks is used: as long as directories of rings are not rescanned."""

_LOCK = re.compile(
    r"^\d+: FLOCK +ADVISORY +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE
)
_USERS = re.compile(r"^Uid:\t\d+\t(\d+)\t", re.MULTILINE)

Inode = tuple[int, int, int]
"""Major and minor number of a file's device, and its inode number."""


def parse_lock_holders(text: str) -> Mapping[Inode, int]:
    """Read /proc/locks: which process has locked a file exclusively, as flock(2) does.

    The kernel translates PIDs into the reader's PID namespace (fs/locks.c, lock_get_status), and
    leaves out processes that are not in it.
    """
    return {
        (int(major, 16), int(minor, 16), int(inode)): int(pid)
        for pid, major, minor, inode in _LOCK.findall(text)
    }


def read_lock_holders(procfs: Path) -> Mapping[Inode, int]:
    """Return which process has locked each file, for all visible processes."""
    return parse_lock_holders(read_text(procfs / "locks", MAX_LOCKS_BYTES))


def parse_user(status: str) -> int | None:
    """Read the effective user of a process from /proc/PID/status; None if it is missing."""
    found = _USERS.search(status)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lock: its effective user, and the Slurm job that started it."""

    user: int
    slurm_job: str


class LockHolders:
    """The holders of locks, read every `LOOK_SECONDS`; may be queried by any thread.

    Args:
        procfs: the node's procfs.
        timer: returns monotonic seconds.
    """

    def __init__(self, procfs: Path, timer: Callable[[], float] = time.monotonic) -> None:
        self._procfs = procfs
        self._timer = timer
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._pids: Mapping[Inode, int] = {}
        self._known: dict[int, Holder | None] = {}

    def of(self, device_and_inode: tuple[int, int]) -> Holder | None:
        """Return the holder of a file's lock; None if no visible process holds it."""
        device, inode = device_and_inode
        with self._lock:
            if self._timer() - self._looked_at >= LOOK_SECONDS:
                self._pids, self._known = read_lock_holders(self._procfs), {}
                self._looked_at = self._timer()
            pid = self._pids.get((os.major(device), os.minor(device), inode))
            if pid is None:
                return None
            if pid not in self._known:
                self._known[pid] = self._look(pid)
            return self._known[pid]

    def _look(self, pid: int) -> Holder | None:
        process = self._procfs / str(pid)
        user = parse_user(read_text(process / "status", MAX_STATUS_BYTES))
        if user is None:
            return None
        placement = parse_cgroup(read_text(process / "cgroup", MAX_CGROUP_BYTES))
        return Holder(user, placement.slurm_job)
