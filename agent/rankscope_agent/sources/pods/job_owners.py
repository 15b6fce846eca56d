"""The owner of each job that runs outside of pods: the users of a machine share job names.

Outside of pods, processes choose their job's name. So a job belongs to the user who first had its
name, for as long as a process of that user has it. Slurm takes precedence: its root process puts
processes into cgroups that name the job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.job_names import JobNameError, without_step
from rankscope_agent.sources.pods.lock_holders import LockHolders

OWNED_SECONDS = 600.0
"""How long a job stays its user's after the last sign of life: as long as its series do."""

MAX_JOBS = 4096
"""Jobs whose users are remembered: as many as names are read in a directory of rings."""


@dataclass(frozen=True, slots=True)
class OwnedFile:
    """A ring outside of pods: the owner of the file, and whether its lock is held."""

    user: int
    inode: tuple[int, int]
    locked: bool


@dataclass(frozen=True, slots=True)
class _Owner:
    user: int
    by_slurm: bool
    seen_at: float


class JobOwners:
    """The owner of each job; may be queried by any thread.

    Args:
        procfs: the node's procfs.
        timer: returns monotonic seconds.
    """

    def __init__(self, procfs: Path, timer: Callable[[], float] = time.monotonic) -> None:
        self._holders = LockHolders(procfs, timer)
        self._timer = timer
        self._lock = threading.Lock()
        self._owners: dict[str, _Owner] = {}

    def is_locked_by_other(self, file: OwnedFile) -> bool:
        """Return True if a process of another user than the file's owner holds the lock of a ring.

        Anyone who may read a file may lock it once its writer has exited.
        """
        holder = self._holders.of(file.inode)
        return holder is not None and holder.user != file.user

    def check(self, job_id: str, file: OwnedFile) -> None:
        """Record a job's owner from a ring; a ring without a living writer changes nothing.

        Raises:
            JobNameError: it is another user's.
        """
        holder = self._holders.of(file.inode) if file.locked else None
        own = holder is not None and holder.user == file.user
        by_slurm = own and holder is not None and holder.slurm_job == without_step(job_id)
        self._check(job_id, file.user, by_slurm=by_slurm, lives=file.locked)

    def check_process(self, job_id: str, user: int, slurm_job: str) -> None:
        """Record a job's owner from one of its processes.

        Raises:
            JobNameError: it is another user's.
        """
        self._check(job_id, user, by_slurm=slurm_job == without_step(job_id), lives=True)

    def _check(self, job_id: str, user: int, *, by_slurm: bool, lives: bool) -> None:
        now = self._timer()
        with self._lock:
            owner = self._owners.get(job_id)
            if owner is not None and now - owner.seen_at >= OWNED_SECONDS:
                owner = None
            if owner is None or owner.user == user:
                by_slurm = by_slurm or (owner is not None and owner.by_slurm)
            elif not by_slurm or owner.by_slurm:
                seen = f"job {job_id} belongs to user {owner.user} here, not to user {user}"
                raise JobNameError("owner", seen)
            if lives:
                self._owners.pop(job_id, None)
                self._owners[job_id] = _Owner(user, by_slurm, now)
                if len(self._owners) > MAX_JOBS:  # the one that was seen longest ago
                    del self._owners[next(iter(self._owners))]
