"""Which process holds the lock of a file, from /proc/locks, and whose process that is.

None of it takes a privilege: a process that can be seen shows its owner.
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

MAX_LOCKS_BYTES = 1 << 20  # of some 15,000 locks
MAX_STATUS_BYTES = 16384

LOOK_SECONDS = 5.0
"""How long what is known of locks counts, as long as directories of rings are left alone."""

_LOCK = re.compile(
    r"^\d+: FLOCK +ADVISORY +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE
)
_USERS = re.compile(r"^Uid:\t\d+\t(\d+)\t", re.MULTILINE)

Inode = tuple[int, int, int]
"""Major and minor number of a file's device, and the number of its inode."""


def parse_lock_holders(text: str) -> Mapping[Inode, int]:
    """Read /proc/locks: which process has locked a file for itself, as flock(2) does.

    The kernel names processes as the reader's PID namespace knows them (fs/locks.c,
    lock_get_status), and leaves out those that it does not know.
    """
    return {
        (int(major, 16), int(minor, 16), int(inode)): int(pid)
        for pid, major, minor, inode in _LOCK.findall(text)
    }


def read_lock_holders(procfs: Path) -> Mapping[Inode, int]:
    """Return which process has locked a file, of all that can be seen."""
    return parse_lock_holders(read_text(procfs / "locks", MAX_LOCKS_BYTES))


def parse_user(status: str) -> int | None:
    """Read the user as whom a process acts out of /proc/PID/status; None where it says none."""
    found = _USERS.search(status)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lock: as whom it acts, and in which of Slurm's jobs it was started."""

    user: int
    slurm_job: str


class LockHolders:
    """Who holds locks, looked at every `LOOK_SECONDS`; may be asked by any thread.

    Args:
        procfs: the node's procfs.
        timer: gives seconds that never go back.
    """

    def __init__(self, procfs: Path, timer: Callable[[], float] = time.monotonic) -> None:
        self._procfs = procfs
        self._timer = timer
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._pids: Mapping[Inode, int] = {}
        self._known: dict[int, Holder | None] = {}

    def of(self, device_and_inode: tuple[int, int]) -> Holder | None:
        """Return who holds a file's lock; None if no visible process does."""
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
