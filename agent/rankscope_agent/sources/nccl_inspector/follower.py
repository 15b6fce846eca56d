"""Follows Inspector's files of a node within bounds: JSON files on and on, Prometheus files anew.

JSON files grow by 200 to 500 bytes an operation and are never rotated, so that what cannot be read
in time is skipped and counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rankscope_agent.settings.descriptors import share
from rankscope_agent.sources.nccl_inspector import records, textfile
from rankscope_agent.sources.nccl_inspector.places import (
    LOG_NAME,
    directories,
    list_files,
    open_file,
)
from rankscope_agent.sources.nccl_inspector.records import Dropped, Record
from rankscope_agent.sources.nccl_inspector.textfile import Speed
from rankscope_agent.sources.training.files import RingDirectory, open_directory
from rankscope_agent.sources.training.format import RingError

MAX_FILES = 256
"""JSON files followed at a time: sixteen jobs of sixteen ranks."""

READ_BYTES = 64 << 10
MAX_LINE = 64 << 10
"""Longest line kept: verbose ones have some 20 KiB for 32 channels."""

MAX_LAG = 4 << 20
"""Bytes that may wait in one file: what comes in about ten seconds at 1,000 operations a second."""

MAX_TEXTFILE_BYTES = 4 << 20
"""Largest Prometheus file read."""

STALE_SECONDS = 600.0
"""Age at which a Prometheus file is of a job that has ended: Inspector writes it every 30 s by
default, and removes it at its end unless it is killed."""

MAX_COUNTED = 4096
"""Counters kept: 256 processes with up to sixteen operations."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose counters these are: the pod (empty outside of pods) and the rank in it.

    The rank is that in the process's largest communicator, which is the job's own rank.
    """

    pod_uid: str
    rank: int


@dataclass(slots=True)
class Totals:
    """What was read of one operation of one rank."""

    operations: int = 0
    seconds: float = 0.0
    size: int = 0


@dataclass(slots=True)
class LogFile:
    """One JSON file under an open descriptor."""

    descriptor: int
    pod_uid: str
    offset: int
    pending: bytes = b""
    rank: int | None = None
    nranks: int = 0
    totals: dict[tuple[str, str], Totals] = field(default_factory=dict)


def file_limit() -> int:
    """Return how many JSON files may be followed at a time."""
    return min(MAX_FILES, share("nccl_inspector"))


class InspectorFollower:
    """All Inspector directories of the node.

    Args:
        kubelet: the kubelet's directory.
        patterns: further directories; the last part of a path may hold wildcards.
        cpu_clock: CPU seconds of the calling thread.
        budget_seconds: CPU time that one reading may take.
    """

    def __init__(
        self,
        kubelet: Path,
        patterns: tuple[Path, ...],
        cpu_clock: Callable[[], float],
        budget_seconds: float,
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
        self._logs: dict[tuple[int, int], LogFile] = {}
        self._ended: dict[Owner, dict[tuple[str, str], Totals]] = {}
        self._speeds: dict[str, tuple[Speed, ...]] = {}
        self._turn = 0

    @property
    def files(self) -> int:
        """How many files are read."""
        return len(self._logs) + len(self._speeds)

    def rescan(self, now: float) -> bool:
        """Look for files that came or went, and read Prometheus files anew; say if there are any.

        Raises:
            OSError: the kubelet's directory of pods is there and cannot be read.
        """
        seen: set[tuple[int, int]] = set()
        pods = set()
        self._speeds, self.left_off, found = {}, 0, False
        for directory in directories(self._kubelet, self._patterns):
            pods.add(directory.pod_uid)
            try:
                with open_directory(directory) as descriptor:
                    found = True
                    self._scan(descriptor, directory, seen, now)
            except (OSError, RingError):  # not there, or not to be read
                continue
        for inode in [inode for inode in self._logs if inode not in seen]:
            self._end(self._logs.pop(inode))
        gone = [owner for owner in self._ended if owner.pod_uid and owner.pod_uid not in pods]
        for owner in gone:
            del self._ended[owner]
        return found

    def _scan(
        self, descriptor: int, directory: RingDirectory, seen: set[tuple[int, int]], now: float
    ) -> None:
        for entry in list_files(descriptor):
            uuid = textfile.gpu_uuid(entry.name)
            if uuid is not None:
                self._read_speeds(descriptor, entry.name, uuid, now)
            elif LOG_NAME.fullmatch(entry.name):
                seen.add(entry.inode)
                self._follow(descriptor, entry.name, entry.inode, directory.pod_uid)

    def _follow(self, directory: int, name: str, inode: tuple[int, int], pod_uid: str) -> None:
        if inode in self._logs:
            return
        if len(self._logs) >= self._most:
            self.left_off += 1
            return
        descriptor = open_file(directory, name)
        if descriptor is not None:
            self._logs[inode] = LogFile(descriptor, pod_uid, 0)

    def _read_speeds(self, directory: int, name: str, uuid: str, now: float) -> None:
        descriptor = open_file(directory, name)
        if descriptor is None:
            return
        try:
            fresh = now - os.fstat(descriptor).st_mtime < STALE_SECONDS
            text = os.pread(descriptor, MAX_TEXTFILE_BYTES, 0) if fresh else b""
        except OSError:
            return
        finally:
            os.close(descriptor)
        speeds = textfile.parse(text.decode(errors="replace"))
        if speeds:
            self._speeds[uuid] = speeds

    def read(self) -> None:
        """Read on in all JSON files, beginning with another one each time, within the budget."""
        end = self._cpu_clock() + self._budget
        self._turn += 1
        logs = list(self._logs.values())
        start = self._turn % len(logs) if logs else 0
        waiting = logs[start:] + logs[:start]
        while waiting:
            waiting = [log for log in waiting if self._cpu_clock() < end and self._read_one(log)]

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
        """Begin anew in a file that was emptied; skip what is too much to be read in time."""
        if size < log.offset:
            log.offset, log.pending = 0, b""
        if size - log.offset > MAX_LAG:
            begin = size - READ_BYTES
            self.skipped_bytes += begin - log.offset
            # What follows is the rest of a line, which is no JSON and counts as such.
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
        """Close a file; its counts stay, as counters must not fall."""
        os.close(log.descriptor)
        if log.rank is not None and len(self._ended) < MAX_COUNTED:
            _merge(self._ended.setdefault(Owner(log.pod_uid, log.rank), {}), log.totals)

    def totals(self) -> Iterator[tuple[Owner, str, str, Totals]]:
        """Yield what was read: owner, operation, timing source, totals."""
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
        """Yield what Prometheus files say: UUID of the GPU, speed of an operation on it."""
        for uuid, speeds in self._speeds.items():
            for speed in speeds:
                yield uuid, speed

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
