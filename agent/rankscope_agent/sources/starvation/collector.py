"""How long the processes of ranks and their data loaders wait for a CPU, from procfs.

A probe measures this only for its training thread, and separates it from compute only on gloo. From
the node, the threads that run backward passes on a GPU and data loader workers are visible too. A
rank's process is identified as the holder of its ring's lock, which requires the node's PID
namespace and no other right. One that a signal has stopped waits for no CPU, and makes all others
wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path

from rankscope_agent.contract.fair_shares import choose
from rankscope_agent.contract.job_names import namespace_of
from rankscope_agent.contract.metrics import starvation as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.lock_holders import Inode, read_lock_holders
from rankscope_agent.sources.starvation.schedule import (
    Waits,
    busiest_threads,
    parse_parent,
    parse_state,
    read_schedstat,
)
from rankscope_agent.sources.training.reader import RingStepSource

FIND_SECONDS = 30.0
"""Time between two scans for ranks, their threads and their workers: the same as for pods'
processes."""

AGAIN_SECONDS = 5.0
"""Time between two scans while no rank is known: the same as for rings in pods."""

LOOK_SECONDS = 5.0
"""Time between two readings of waits: 16 threads and 8 workers of each rank are some 200 files."""

ALL_SECONDS = 300.0
"""Time between two scans in which also processes that were no rank's worker are looked at: only a
reused process number makes one a worker."""

MAX_PROCESSES = 65_536
MAX_WORKERS = 64
"""Workers of a rank that are followed; usual are 8, or one for each CPU of the node."""

MAX_RANKS = 64
"""Ranks followed: eight times those of a node of eight GPUs."""

RankKey = tuple[str, int]


def create(config: Config, pods: PodDirectory) -> StarvationCollector:
    """Create the collector of waits for CPUs."""
    rings = RingStepSource(config.ring_dir, config.kubelet, config.node_name, time.time, pods)
    return StarvationCollector(config.procfs, rings.holders, time.monotonic)


class _Followed:
    """One rank's process.

    Args:
        process: its directory in procfs.
    """

    def __init__(self, process: Path) -> None:
        self.process = process
        self.threads: Sequence[Path] = ()
        self.workers: Sequence[Path] = ()
        self.state = ""
        self.stopped_at: float | None = None
        self.ring: Inode | None = None
        self.missed = False
        self.waits = {metrics.RANK_STARVED: Waits(), metrics.LOADER_STARVED: Waits()}

    def look(self, now: float) -> None:
        """Add threads' and workers' waits since the last reading; check if it is stopped."""
        self.state = parse_state(read_text(self.process / "stat"))
        if self.state == "T":  # by a signal: tools that inspect a process stop it briefly
            self.stopped_at = time.time()
        for metric, files in (
            (metrics.RANK_STARVED, self.threads),
            (metrics.LOADER_STARVED, self.workers),
        ):
            found = {file: known for file in files if (known := read_schedstat(file))}
            self.waits[metric].look(found, now)


class _Strangers:
    """The processes that are no rank's worker: a node has thousands, and looking costs most."""

    def __init__(self) -> None:
        self.names: Container[str] = ()
        self._parents: frozenset[int] = frozenset()
        self._since = float("-inf")

    def of(self, parents: frozenset[int], now: float) -> Container[str]:
        """Return the names of those that need not be looked at again, with these ranks."""
        if parents != self._parents or now - self._since >= ALL_SECONDS:
            self._parents, self._since, self.names = parents, now, ()
        return self.names


class StarvationCollector:
    """Follows the processes that hold rings.

    Args:
        procfs: the node's procfs.
        rings: returns the inodes of live rings, with job and rank, those of locked files first.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        procfs: Path,
        rings: Callable[[Container[Inode]], Mapping[Inode, RankKey]],
        clock: Callable[[], float],
    ) -> None:
        self._procfs = procfs
        self._rings = rings
        self._clock = clock
        self._followed: dict[RankKey, _Followed] = {}
        self._found_at = self._looked_at = float("-inf")
        self._absence = ""
        self._strangers = _Strangers()

    def collect(self) -> Iterator[Sample]:
        """Yield how long each rank has waited.

        Raises:
            NoData: no process of a rank is visible.
        """
        now = self._clock()
        if now - self._found_at >= (FIND_SECONDS if self._followed else AGAIN_SECONDS):
            self._found_at = now
            self._find()
            self._looked_at = float("-inf")
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            for followed in self._followed.values():
                followed.look(now)
        if not self._followed:
            raise NoData(self._absence)
        for (job_id, rank), followed in self._followed.items():
            yield from _samples(followed, job_id, rank)

    def _find(self) -> None:
        """Determine which processes are ranks, their busiest threads, and their workers."""
        holders = read_lock_holders(self._procfs)
        rings = self._rings(holders)
        files = {key: inode for inode, key in rings.items() if inode in holders}
        ranks = {key: holders[inode] for key, inode in files.items()}
        self._absence = _absence(bool(rings), bool(ranks))
        before, self._followed = self._followed, {}
        ranks = {**_missed_once(before, ranks, holders), **ranks}
        for key in choose(ranks, lambda rank: (namespace_of(rank[0]), rank[0]), MAX_RANKS):
            pid = ranks[key]
            process = self._procfs / str(pid)
            known = before.get(key)
            followed = known if known and known.process == process else _Followed(process)
            followed.ring = files.get(key, followed.ring)
            followed.threads = busiest_threads(process)
            if followed.threads:
                self._followed[key] = followed
        workers = self._children(frozenset(ranks.values()))
        for followed in self._followed.values():
            followed.workers = workers.get(int(followed.process.name), ())

    def _children(self, parents: frozenset[int]) -> Mapping[int, Sequence[Path]]:
        """Return the main threads of these processes' children."""
        found: dict[int, list[Path]] = {parent: [] for parent in parents}
        if not found:
            return found
        with os.scandir(self._procfs) as entries:
            names = [entry.name for entry in entries if entry.name.isdecimal()]
        known = self._strangers.of(parents, self._clock())
        strangers = set()
        for name in names[:MAX_PROCESSES]:
            parent = (
                None if name in known else parse_parent(read_text(self._procfs / name / "stat"))
            )
            if parent not in found:
                strangers.add(name)
            elif len(found[parent]) < MAX_WORKERS:
                found[parent].append(self._procfs / name / "schedstat")
        self._strangers.names = strangers
        return found


def _missed_once(
    before: Mapping[RankKey, _Followed], found: Container[RankKey], locked: Container[Inode]
) -> Mapping[RankKey, int]:
    """Return followed processes of ranks whose lock is missing for the first time.

    /proc/locks is read in pieces, and other processes that lock and unlock meanwhile may hide a
    rank's lock. Processes that have ended are not followed.
    """
    for key, followed in before.items():
        hidden = key not in found and followed.ring not in locked
        followed.missed = hidden and not followed.missed
    return {key: int(one.process.name) for key, one in before.items() if one.missed}


def _absence(rings: bool, seen: bool) -> str:
    if not rings:
        return "no live rank has a ring"
    if not seen:
        return "the processes of the ranks are not visible: the agent is in another PID namespace"
    return "the kernel does not count how long threads wait (CONFIG_SCHED_INFO)"


def _samples(followed: _Followed, job_id: str, rank: int) -> Iterator[Sample]:
    who = {"job_id": job_id, "rank": str(rank)}
    if followed.state:
        yield metrics.RANK_STOPPED.sample(int(followed.state in ("T", "t")), **who)
    if followed.stopped_at is not None:
        yield metrics.RANK_LAST_STOPPED.sample(followed.stopped_at, **who)
    for metric, waited in followed.waits.items():
        if waited.seconds is not None:
            yield metric.sample(waited.seconds, **who)
