"""Finds the training processes of a node in /proc: their ranks and containers.

Reading another process's environment requires the right to trace it (CAP_SYS_PTRACE, and
CAP_DAC_READ_SEARCH if it runs as another user); without it ranks stay unknown here.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path, PurePath

from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.pods.cgroups import MAX_CGROUP_BYTES, Placement, parse_cgroup
from rankscope_agent.sources.pods.command_line import MAX_COMMAND_BYTES, parse_command
from rankscope_agent.sources.pods.loaded_probe import LoadedProbe
from rankscope_agent.sources.pods.lock_holders import MAX_STATUS_BYTES, parse_user
from rankscope_agent.sources.pods.processes import (
    ProcessIdentity,
    has_probe,
    parse_environ,
    process_identity,
    ring_directory,
)

MAX_PROCESSES = 65536
"""Processes read in one scan; the largest nodes run some thousand."""

MAX_ENVIRON_BYTES = 1 << 18
"""Bytes read of an environment; the kernel allows 2 MiB, and launchers' variables come early except
after thousands of service variables, which have 100 bytes each."""

MAX_STAT_BYTES = 1 << 20
"""Bytes of /proc/stat, whose line of interrupts is some 10 KiB and precedes the boot time."""

START_FIELD = 19
"""The part of /proc/PID/stat after the name, which ends with a parenthesis: ticks from boot to the
start of the process (starttime, field 22 in proc(5))."""

_BOOT = re.compile(rb"^btime (\d+)$", re.MULTILINE)

MAX_NEW_COMMANDS = 64
"""Command lines searched for secrets in one scan: four for each of 16 ranks. One that is made to be
slow takes 40 ms; those beyond the limit are read in later scans."""

LOOKS = 2
"""A process is read twice before it counts as not being a rank: a launcher first forks and then
executes the trainer, with its variables."""

AGAIN = 30
"""Scans after which such a process is read again: a start script may prepare for minutes before it
executes the trainer in its place. Likewise one that may not be read."""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A training process.

    Args:
        command: its command line, with secrets replaced.
        pid: its PID in the scanned PID namespace.
        started_unix_seconds: when it started; None if the kernel does not say.
        probed: whether it was given a probe whose ring this agent reads; outside of pods, whether
            it has loaded one.
        user: the user that it runs as; None if the kernel does not say.
        ring_here: whether a probe in it would write a ring that this agent reads.
    """

    identity: ProcessIdentity
    placement: Placement
    environ: Mapping[str, str]
    command: tuple[str, ...]
    pid: int
    started_unix_seconds: float | None = None
    probed: bool = False
    user: int | None = None
    ring_here: bool = True


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan; `unreadable` is the number of environments that may not be read."""

    ranks: Sequence[RankProcess]
    unreadable: int
    seen: int


class ProcessScanner:
    """Scans processes repeatedly; those that are not ranks are read rarely after the second time.

    Args:
        procfs: the node's /proc, with the host's processes.
        pod_environment: returns the variables in a container's specification, by its id. A rank
            from there is the pod's, not the process's.
        ring_dir: where this agent reads the rings of processes outside of pods.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self,
        procfs: Path,
        pod_environment: Callable[[Placement], Mapping[str, str]],
        ring_dir: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._procfs = procfs
        self._clock = clock
        self._probes = LoadedProbe(procfs)
        self._ring_dir = ring_dir.absolute()
        self._pod_environment = pod_environment
        self._idle: dict[tuple[int, int], int] = {}
        self._denied: set[tuple[int, int]] = set()
        self._commands: dict[bytes, tuple[str, ...]] = {}
        self._commands_before: dict[bytes, tuple[str, ...]] = {}
        self._new_commands = 0

    def scan(self) -> Scan:
        """Scan all processes.

        Raises:
            OSError: the directory of processes cannot be listed.
        """
        idle: dict[tuple[int, int], int] = {}
        denied: set[tuple[int, int]] = set()
        self._commands_before, self._commands, self._new_commands = self._commands, {}, 0
        found: list[RankProcess] = []
        seen = 0
        for pid, key in self._processes():
            seen += 1
            looks = self._idle.get(key, 0)
            if looks >= LOOKS and (looks + pid) % AGAIN:  # by the PID, as not all at the same scan
                idle[key] = looks + 1
                denied.update({key} & self._denied)
                continue
            try:
                rank = self._look(pid)
            except PermissionError:
                idle[key] = looks + 1
                denied.add(key)
                continue
            except OSError:  # it ended between listing and reading
                continue
            if rank is None:
                idle[key] = looks + 1
            else:
                found.append(rank)
        self._idle, self._denied = idle, denied
        self._probes.begin_scan()
        ranks = tuple(self._rank(same) for same in _by_rank(found))
        return Scan(ranks, len(denied), seen)

    def _rank(self, same: Sequence[RankProcess]) -> RankProcess:
        """Return a rank's oldest process, with a probe if it, or one of the others, has loaded it.

        A shell that starts the trainer has its variables, and never loads anything.
        """
        first = same[0]
        if first.placement.pod_uid:
            return first
        given = any(one.probed for one in same)
        started = ((one.pid, one.started_unix_seconds or 0.0) for one in same if one.ring_here)
        probed = self._probes.is_in_any(started, self._clock(), given=given)
        return replace(first, probed=probed)

    def _processes(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield PIDs with a key that changes when a PID is reused."""
        # The inode number comes with the listing. The kernel assigns it when it creates the entry,
        # so a reused PID has another one.
        with os.scandir(self._procfs) as entries:
            found = [(int(e.name), e.inode()) for e in entries if e.name.isdecimal()]
        for pid, inode in sorted(found)[:MAX_PROCESSES]:
            yield pid, (pid, inode)

    def _look(self, pid: int) -> RankProcess | None:
        """Read one process; return None if it is not a rank.

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
        started, in_pod = _started(folder), bool(placement.pod_uid)
        ring_here = in_pod or self._reads(ring_directory(raw), folder)
        probed = ring_here and has_probe(raw, in_pod=in_pod)
        user = parse_user(read_text(folder / "status", MAX_STATUS_BYTES))
        return RankProcess(
            identity,
            placement,
            environ,
            self._command(folder),
            pid,
            started,
            probed,
            user,
            ring_here,
        )

    def _reads(self, directory: str, folder: Path) -> bool:
        """Return False if a process writes its ring where another agent reads it.

        Such a process has no ring here however long it trains. Only text is compared, of processes
        that see the files of this agent or of the host: whoever looks a directory up waits for its
        file system.
        """
        path = PurePath(directory)
        # A user's own is below it, named after its number.
        if not path.is_absolute() or self._ring_dir in (path, path.parent):
            return True
        seen = _mounts(folder)
        return not seen or seen not in {_mounts(self._procfs / name) for name in ("self", "1")}

    def _command(self, folder: Path) -> tuple[str, ...]:
        """Return the command line of a process; empty if it may not be read, or not yet.

        The same one is searched for secrets only once.
        """
        try:
            data = _read(folder / "cmdline", MAX_COMMAND_BYTES)
        except OSError:
            return ()
        key = blake2b(data, digest_size=16).digest()
        known = self._commands.get(key, self._commands_before.get(key))
        if known is None:
            self._new_commands += 1
            if self._new_commands > MAX_NEW_COMMANDS:
                return ()
            known = parse_command(data)
        self._commands[key] = known
        return known

    def _is_pods_own(self, environ: Mapping[str, str], placement: Placement) -> bool:
        """Return True if RANK is the one that the pod's specification sets for every process.

        Shells, sidecars and torchrun itself have it; unless the pod runs one process, it numbers
        the pod, not a rank.
        """
        given = self._pod_environment(placement)
        if given.get("PET_NPROC_PER_NODE") == "1":
            return False
        return "RANK" in given and given.get("RANK") == environ.get("RANK")


def _mounts(folder: Path) -> str:
    """Return the mount namespace of a process; empty if it may not be read."""
    try:
        return str((folder / "ns" / "mnt").readlink())
    except OSError:
        return ""


def _started(folder: Path) -> float | None:
    """Return the Unix time at which a process was started, to one tick of the kernel's clock."""
    try:
        stat = _read(folder / "stat", MAX_STAT_BYTES)
        boot = _BOOT.search(_read(folder.parent / "stat", MAX_STAT_BYTES))
        ticks = int(stat.rpartition(b")")[2].split()[START_FIELD])
    except (OSError, ValueError, IndexError):
        return None
    return int(boot[1]) + ticks / os.sysconf("SC_CLK_TCK") if boot else None


def _by_rank(found: Sequence[RankProcess]) -> Iterator[Sequence[RankProcess]]:
    """Yield the processes of each rank in its container: the trainer, then those that inherit.

    Data loader workers have their trainer's variables; launchers lack LOCAL_RANK.
    """
    by_rank: dict[tuple[str, str, int], list[RankProcess]] = defaultdict(list)
    for process in found:
        placement = process.placement
        where = placement.container_id or placement.pod_uid or process.identity.own_job
        by_rank[where, process.identity.own_job, process.identity.rank].append(process)
    for same in by_rank.values():
        stated = [one for one in same if one.identity.local_rank is not None] or same
        yield sorted(stated, key=lambda one: one.pid)


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
