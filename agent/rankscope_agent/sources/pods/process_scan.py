"""Finds the training processes of a node in /proc: their ranks and containers.

Reading another process's environment takes the right to trace it (CAP_SYS_PTRACE, and
CAP_DAC_READ_SEARCH where it runs as another user); without it ranks stay unknown here.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.pods.cgroups import MAX_CGROUP_BYTES, Placement, parse_cgroup
from rankscope_agent.sources.pods.command_line import MAX_COMMAND_BYTES, parse_command
from rankscope_agent.sources.pods.lock_holders import MAX_STATUS_BYTES, parse_user
from rankscope_agent.sources.pods.processes import (
    ProcessIdentity,
    has_probe,
    parse_environ,
    process_identity,
)

MAX_PROCESSES = 65536
"""Processes looked at in one scan; the largest nodes run some thousand."""

MAX_ENVIRON_BYTES = 1 << 18
"""Bytes read of an environment; the kernel allows 2 MiB, and what launchers set stands early
except behind thousands of service variables, which have 100 bytes each."""

MAX_STAT_BYTES = 1 << 20
"""Of /proc/stat, whose line of interrupts is some 10 KiB and stands before the time of boot."""

START_FIELD = 19
"""Of /proc/PID/stat behind the name, which ends with a parenthesis: ticks from boot to the start
of the process (starttime, field 22 in proc(5))."""

_BOOT = re.compile(rb"^btime (\d+)$", re.MULTILINE)

LOOKS = 2
"""A process is looked at twice before it counts as no rank: a launcher forks first and then
executes the trainer, with its variables."""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A training process.

    Args:
        command: what it was started with, without what looks secret.
        pid: its number in the space of processes that was looked at.
        started_unix_seconds: when it was started, None where the kernel does not say.
        probed: it was given the probe.
        user: as whom it runs, None where the kernel does not say.
    """

    identity: ProcessIdentity
    placement: Placement
    environ: Mapping[str, str]
    command: tuple[str, ...]
    pid: int
    started_unix_seconds: float | None = None
    probed: bool = False
    user: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """What a look at all processes gave; `unreadable` had environments that may not be read."""

    ranks: Sequence[RankProcess]
    unreadable: int
    seen: int


class ProcessScanner:
    """Looks at processes again and again; those that are no ranks are not read a third time.

    Args:
        procfs: the node's /proc, with the host's processes in it.
        pod_environment: gives the variables that a container's specification sets, by its id.
            A rank number that comes from there is the pod's, not the process's.
    """

    def __init__(
        self, procfs: Path, pod_environment: Callable[[Placement], Mapping[str, str]]
    ) -> None:
        self._procfs = procfs
        self._pod_environment = pod_environment
        self._idle: dict[tuple[int, int], int] = {}

    def scan(self) -> Scan:
        """Look at all processes.

        Raises:
            OSError: the directory of processes cannot be listed.
        """
        idle: dict[tuple[int, int], int] = {}
        found: list[tuple[int, RankProcess]] = []
        unreadable = seen = 0
        for pid, key in self._processes():
            seen += 1
            looks = self._idle.get(key, 0)
            if looks >= LOOKS:
                idle[key] = looks
                continue
            try:
                rank = self._look(pid)
            except PermissionError:
                unreadable += 1
                continue
            except OSError:  # it ended between listing and reading
                continue
            if rank is None:
                idle[key] = looks + 1
            else:
                found.append((pid, rank))
        self._idle = idle
        return Scan(tuple(_first_of_each(found)), unreadable, seen)

    def _processes(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield process ids with a key that changes when an id is used again."""
        # The inode number comes with the listing. The kernel makes it when it makes the entry, so
        # that an id that is used again has another one.
        with os.scandir(self._procfs) as entries:
            found = [(int(e.name), e.inode()) for e in entries if e.name.isdecimal()]
        for pid, inode in sorted(found)[:MAX_PROCESSES]:
            yield pid, (pid, inode)

    def _look(self, pid: int) -> RankProcess | None:
        """Read one process; None where it is no rank.

        Raises:
            OSError: it has ended, or may not be read.
        """
        folder = self._procfs / str(pid)
        raw = _read(folder / "environ", MAX_ENVIRON_BYTES)
        environ = parse_environ(raw)
        identity = process_identity(environ)
        if identity is None:
            return None
        placement = parse_cgroup(
            _read(folder / "cgroup", MAX_CGROUP_BYTES).decode("utf-8", "replace")
        )
        if identity.local_rank is None and self._is_pods_own(environ, placement):
            return None
        started, probed = _started(folder), has_probe(raw)
        user = parse_user(read_text(folder / "status", MAX_STATUS_BYTES))
        return RankProcess(
            identity, placement, environ, _command(folder), pid, started, probed, user
        )

    def _is_pods_own(self, environ: Mapping[str, str], placement: Placement) -> bool:
        """Return True if RANK is the one that the pod's specification gives to every process.

        Shells, sidecars and torchrun itself carry it; unless the pod runs one process, it numbers
        the pod and no rank.
        """
        given = self._pod_environment(placement)
        if given.get("PET_NPROC_PER_NODE") == "1":
            return False
        return "RANK" in given and given.get("RANK") == environ.get("RANK")


def _started(folder: Path) -> float | None:
    """Return the Unix time at which a process was started, to a tick of the kernel's clock."""
    try:
        stat = _read(folder / "stat", MAX_STAT_BYTES)
        boot = _BOOT.search(_read(folder.parent / "stat", MAX_STAT_BYTES))
        ticks = int(stat.rpartition(b")")[2].split()[START_FIELD])
    except (OSError, ValueError, IndexError):
        return None
    return int(boot[1]) + ticks / os.sysconf("SC_CLK_TCK") if boot else None


def _command(folder: Path) -> tuple[str, ...]:
    """Return what a process was started with; nothing if that may not be read."""
    try:
        return parse_command(_read(folder / "cmdline", MAX_COMMAND_BYTES))
    except OSError:
        return ()


def _first_of_each(found: Sequence[tuple[int, RankProcess]]) -> Iterator[RankProcess]:
    """Yield one process per rank and container: the oldest, whose children only inherit.

    Workers of a data loader have their trainer's variables; launchers have none of LOCAL_RANK.
    """
    by_rank: dict[tuple[str, str, int], list[tuple[int, RankProcess]]] = defaultdict(list)
    for pid, process in found:
        placement = process.placement
        where = placement.container_id or placement.pod_uid or process.identity.own_job
        by_rank[where, process.identity.own_job, process.identity.rank].append((pid, process))
    for same in by_rank.values():
        stated = [item for item in same if item[1].identity.local_rank is not None] or same
        yield min(stated, key=lambda item: item[0])[1]


def _read(path: Path, limit: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return b"".join(_chunks(descriptor, limit))
    finally:
        os.close(descriptor)


def _chunks(descriptor: int, limit: int) -> Iterator[bytes]:
    left = limit
    while left > 0 and (chunk := os.read(descriptor, min(left, 65536))):
        left -= len(chunk)
        yield chunk
