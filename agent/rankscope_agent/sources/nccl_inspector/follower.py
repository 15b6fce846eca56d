"""Follows the node's Inspector files within limits: JSON incrementally, Prometheus files whole.

JSON files grow by 200 to 500 bytes per operation and are never rotated, so whatever cannot be read
in time is skipped and counted.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rankscope_agent.contract.fair_shares import Holder, choose, take_turns
from rankscope_agent.settings.file_descriptors import share
from rankscope_agent.sources.nccl_inspector import records, textfile
from rankscope_agent.sources.nccl_inspector.directories import (
    LOG_NAME,
    Entry,
    directories,
    list_files,
    open_file,
)
from rankscope_agent.sources.nccl_inspector.records import Dropped, Record
from rankscope_agent.sources.nccl_inspector.speeds import GpuSpeeds
from rankscope_agent.sources.nccl_inspector.textfile import Speed
from rankscope_agent.sources.run_time import time_left
from rankscope_agent.sources.training.files import RingDirectory, holder_of, open_directory
from rankscope_agent.sources.training.format import RingError

MAX_FILES = 256
"""JSON files followed at a time: sixteen jobs of sixteen ranks."""

QUIET_NS = 600 * 10**9
"""A followed file keeps its place until another one was written this much later: those of a running
job do not take turns with one another."""

READ_BYTES = 64 << 10
MAX_LINE = 64 << 10
"""Longest line kept: verbose ones have some 20 KiB for 32 channels."""

MAX_LAG = 4 << 20
"""Bytes that may be pending in one file: about ten seconds of output at 1,000 operations a
second."""

SCAN_SECONDS = 0.1
"""CPU time that a scan for files may take: 2 % of the five seconds between two scans."""

MAX_COUNTED = 4096
"""Counters kept: 256 processes with up to sixteen operations."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of counters: the pod (empty outside of pods) and the rank in it.

    The rank is that in the process's largest communicator, which is the rank in the job.
    """

    pod_uid: str
    rank: int


@dataclass(slots=True)
class Totals:
    """The totals of one operation of one rank."""

    operations: int = 0
    seconds: float = 0.0
    size: int = 0


@dataclass(slots=True)
class LogFile:
    """One JSON file with its open descriptor."""

    descriptor: int
    pod_uid: str
    holder: Holder
    offset: int
    pending: bytes = b""
    rank: int | None = None
    nranks: int = 0
    totals: dict[tuple[str, str], Totals] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftAt:
    """The position in a file that is no longer followed, and what was known about its writer."""

    offset: int
    rank: int | None
    nranks: int


@dataclass(frozen=True, slots=True)
class _Listing:
    """The contents of a directory when it last changed.

    Args:
        stamp: inode and times of the directory.
        linked: number of files with several links, which are not read.
    """

    stamp: tuple[int, int, int]
    logs: list[Entry]
    speeds: list[Entry]
    linked: int


def _listed(descriptor: int, stamp: tuple[int, int, int]) -> _Listing:
    """List a directory.

    Raises:
        OSError: it cannot be read.
    """
    entries = list_files(descriptor)
    own = [entry for entry in entries if entry.links == 1]
    return _Listing(
        stamp,
        [entry for entry in own if LOG_NAME.fullmatch(entry.name)],
        [entry for entry in own if textfile.gpu_uuid(entry.name)],
        len(entries) - len(own),
    )


def file_limit() -> int:
    """Return the number of JSON files that may be followed at a time."""
    return min(MAX_FILES, share("nccl_inspector"))


class InspectorFollower:
    """All Inspector directories of the node.

    Args:
        kubelet: the kubelet's directory.
        patterns: further directories; the last part of a path may contain wildcards.
        cpu_clock: CPU seconds of the calling thread.
        budget_seconds: CPU time that one reading may take.
        held: returns the UUIDs of a pod's GPUs; None if they are unknown.
        namespace_of: returns the namespace of a pod; empty if unknown.
        timer: returns monotonic seconds.
    """

    def __init__(
        self,
        kubelet: Path,
        patterns: tuple[Path, ...],
        cpu_clock: Callable[[], float],
        budget_seconds: float,
        held: Callable[[str], Collection[str] | None] = lambda _: None,
        namespace_of: Callable[[str], str] = lambda _: "",
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = file_limit()
        self.skipped_bytes = 0
        self.dropped = 0
        self.unparsed = 0
        self.left_off = 0
        self._kubelet = kubelet
        self._patterns = patterns
        self._cpu_clock = cpu_clock
        self._budget = budget_seconds
        self._timer = timer
        self._logs: dict[tuple[int, int], LogFile] = {}
        self._ended: dict[Owner, dict[tuple[str, str], Totals]] = {}
        self._speeds = GpuSpeeds(held)
        self._namespace_of = namespace_of
        self._left_at: dict[tuple[int, int], LeftAt] = {}
        self._listings: dict[RingDirectory, _Listing] = {}
        self._linked = 0
        self._credit = 0.0
        self._turn = self._next_directory = 0

    @property
    def files(self) -> int:
        """The number of files that are read."""
        return len(self._logs) + self._speeds.files

    @property
    def refused(self) -> int:
        """The number of files not read because they are links or report on others' GPUs."""
        return self._linked + self._speeds.refused

    def rescan(self, now: float) -> bool:
        """Scan for files that appeared or disappeared; return whether there is any directory.

        Only directories that have changed are read again, as far as the budget of a scan allows;
        the others are assumed to be unchanged.

        Raises:
            OSError: the kubelet's directory of pods exists but cannot be read.
        """
        in_time = time_left(self._cpu_clock, SCAN_SECONDS, self._timer)
        before, self._listings = self._listings, {}
        found_directories = list(directories(self._kubelet, self._patterns))
        self._next_directory = (self._next_directory + 1) % max(1, len(found_directories))
        for turn, directory in enumerate(
            (*found_directories[self._next_directory :], *found_directories[: self._next_directory])
        ):
            known = before.get(directory)
            if turn and not in_time():
                if known is not None:
                    self._listings[directory] = known
                continue
            with suppress(OSError, RingError):  # it does not exist, or may not be read
                self._listings[directory] = self._look(directory, known)
        self._choose()
        self._linked = sum(listing.linked for listing in self._listings.values())
        self._speeds.take({directory: one.speeds for directory, one in self._listings.items()})
        present = {directory.pod_uid for directory in found_directories}
        for owner in [owner for owner in self._ended if owner.pod_uid not in present | {""}]:
            del self._ended[owner]
        return bool(self._listings)

    def _look(self, directory: RingDirectory, known: _Listing | None) -> _Listing:
        """List a directory if it has changed.

        Raises:
            OSError: it does not exist or cannot be read.
            RingError: a part of its path is a link.
        """
        with open_directory(directory) as descriptor:
            status = os.fstat(descriptor)
            stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            return known if known and known.stamp == stamp else _listed(descriptor, stamp)

    def _choose(self) -> None:
        """Divide the limit: close files that are gone or exceed their share, and open new ones.

        Nothing removes the files of processes that have ended, so the newest ones come first.
        """
        found = [
            (directory, entry) for directory, one in self._listings.items() for entry in one.logs
        ]
        newest_first = sorted(found, key=lambda one: -self._written_ns(one[1]))
        chosen = choose(newest_first, lambda one: self._holder(*one), self._most)
        self.left_off = len(found) - len(chosen)
        present = {entry.inode for _, entry in found}
        kept = {entry.inode for _, entry in chosen}
        for inode in [inode for inode in self._logs if inode not in kept]:
            log = self._logs.pop(inode)
            self._left_at[inode] = LeftAt(log.offset - len(log.pending), log.rank, log.nranks)
            self._end(log)
        self._left_at = {inode: at for inode, at in self._left_at.items() if inode in present}
        for directory, entry in chosen:
            if entry.inode not in self._logs:
                self._follow(directory, entry)

    def _written_ns(self, entry: Entry) -> int:
        """Return when a file was written last; a followed one keeps its place for a while."""
        log = self._logs.get(entry.inode)
        if log is None:
            return entry.written_ns
        with suppress(OSError):  # its file system does not report it
            return os.fstat(log.descriptor).st_mtime_ns + QUIET_NS
        return entry.written_ns

    def _holder(self, directory: RingDirectory, entry: Entry) -> Holder:
        return holder_of(directory, self._namespace_of(directory.pod_uid), entry.user)

    def _follow(self, directory: RingDirectory, entry: Entry) -> None:
        """Begin to follow a file, from where it was last read."""
        with suppress(OSError, RingError), open_directory(directory) as folder:
            descriptor = open_file(folder, entry.name)
            if descriptor is not None:
                at = self._left_at.pop(entry.inode, LeftAt(0, None, 0))
                log = LogFile(
                    descriptor, directory.pod_uid, self._holder(directory, entry), at.offset
                )
                log.rank, log.nranks = at.rank, at.nranks
                self._logs[entry.inode] = log

    def read(self, now: float) -> None:
        """Read on in all files, starting with a different one each time, within the budget.

        If one reading exceeds it, for instance with a large file, the excess is deducted from the
        next ones.
        """
        self._credit = min(self._budget, self._credit + self._budget)
        began = self._cpu_clock()
        in_time = time_left(self._cpu_clock, self._credit, self._timer)
        self._turn += 1
        logs = list(self._logs.values())
        start = self._turn % len(logs) if logs else 0
        waiting = logs[start:] + logs[:start]
        half = self._credit / 2 if waiting else self._credit
        self._speeds.read(now, time_left(self._cpu_clock, half, self._timer))
        take_turns(
            waiting,
            lambda log: log.holder,
            lambda log: in_time() and self._read_one(log),
        )
        self._credit -= self._cpu_clock() - began

    def _read_one(self, log: LogFile) -> bool:
        """Read a piece of a file; return whether there may be more."""
        try:
            size = os.fstat(log.descriptor).st_size
            self._keep_up(log, size)
            data = os.pread(log.descriptor, READ_BYTES, log.offset)
        except OSError:
            return False
        log.offset += len(data)
        lines = (log.pending + data).split(b"\n")
        log.pending = lines.pop()
        if len(log.pending) > MAX_LINE:
            self.unparsed, log.pending = self.unparsed + 1, b""
        for line in lines:
            if line.strip():
                self._take(log, line)
        return bool(data)

    def _keep_up(self, log: LogFile, size: int) -> None:
        """Restart in a file that was truncated; skip what is too much to be read in time."""
        if size < log.offset:
            log.offset, log.pending = 0, b""
        if size - log.offset > MAX_LAG:
            begin = size - READ_BYTES
            self.skipped_bytes += begin - log.offset
            # What follows is the rest of a line, which is not valid JSON and is counted as such.
            log.offset, log.pending = begin, b""

    def _take(self, log: LogFile, line: bytes) -> None:
        record = records.parse(line)
        if isinstance(record, Dropped):
            self.dropped += record.operations
        elif isinstance(record, Record):
            if record.nranks > log.nranks:
                log.rank, log.nranks = record.rank, record.nranks
            _add(log.totals.setdefault((record.operation, record.timing_source), Totals()), record)
        else:
            self.unparsed += 1

    def _end(self, log: LogFile) -> None:
        """Close a file; its counts stay, because counters must not decrease."""
        os.close(log.descriptor)
        if log.rank is None:
            return
        owner = Owner(log.pod_uid, log.rank)
        if owner in self._ended or len(self._ended) < MAX_COUNTED or self._make_room(log.pod_uid):
            _merge(self._ended.setdefault(owner, {}), log.totals)

    def _make_room(self, pod_uid: str) -> bool:
        """Forget a rank of the pod with the most ranks, if it has two more than this one."""
        ranks = Counter(owner.pod_uid for owner in self._ended)
        largest = max(ranks, key=lambda uid: ranks[uid])
        if ranks[largest] < ranks[pod_uid] + 2:
            return False
        del self._ended[next(owner for owner in self._ended if owner.pod_uid == largest)]
        return True

    def totals(self) -> Iterator[tuple[Owner, str, str, Totals]]:
        """Yield the results: owner, operation, timing source, totals."""
        summed: dict[Owner, dict[tuple[str, str], Totals]] = {}
        for owner, known in self._ended.items():
            _merge(summed.setdefault(owner, {}), known)
        for log in self._logs.values():
            if log.rank is not None:
                _merge(summed.setdefault(Owner(log.pod_uid, log.rank), {}), log.totals)
        for owner, known in summed.items():
            for (operation, source), totals in known.items():
                yield owner, operation, source, totals

    def speeds(self) -> Iterator[tuple[str, Speed]]:
        """Yield the contents of Prometheus files: UUID of the GPU, speed of an operation on it."""
        return self._speeds.speeds()

    def close(self) -> None:
        """Close all files."""
        for log in self._logs.values():
            os.close(log.descriptor)
        self._logs.clear()


def _add(totals: Totals, record: Record) -> None:
    totals.operations += 1
    totals.seconds += record.seconds
    totals.size += record.size


def _merge(into: dict[tuple[str, str], Totals], more: dict[tuple[str, str], Totals]) -> None:
    for key, totals in more.items():
        known = into.setdefault(key, Totals())
        known.operations += totals.operations
        known.seconds += totals.seconds
        known.size += totals.size
