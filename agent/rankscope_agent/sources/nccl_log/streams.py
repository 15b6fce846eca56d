"""Finds the logs of containers and follows each one across rotations.

The kubelet creates /var/log/pods/<namespace>_<name>_<uid>/<container>/<restarts>.log
(pkg/kubelet/kuberuntime/helpers.go). On rotation the file is renamed to N.log.YYYYMMDD-HHMMSS and a
new N.log is created; at the next rotation the renamed one becomes a .gz
(logs/container_log_manager.go).
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from rankscope_agent.settings.file_descriptors import share
from rankscope_agent.sources.nccl_log.segments import (
    READ_BYTES,
    LogRejectedError,
    Segment,
    open_log,
)
from rankscope_agent.sources.pods.log_directories import PodIdentity, pod_of

MAX_STREAMS = 256
"""Logs followed at a time: those of 110 pods (the kubelet's default) with two containers each."""

MAX_NAMES = 4096
"""Names read in one directory."""

MAX_SEGMENTS = 6
"""Files of one log that are open at a time: the five that the kubelet keeps, and the next one."""


def stream_limit() -> int:
    """Return the number of logs that may be followed at a time, each with all of its files."""
    return min(MAX_STREAMS, share("nccl_log") // MAX_SEGMENTS)


def log_name(path: Path) -> str:
    """Return the name that distinguishes a log from the others of its pod."""
    return f"{path.parent.name}/{path.name}"


@dataclass(frozen=True, slots=True)
class LogLocation:
    """The location of a log: the path of its newest file, and its owner."""

    path: Path
    owner: PodIdentity


NO_POD = PodIdentity("", "")


def pod_logs(root: Path) -> Iterator[LogLocation]:
    """Yield the newest log of each container of each pod.

    Raises:
        OSError: the directory exists but cannot be read.
    """
    for pod in _names(root):
        owner = pod_of(pod)
        if owner is None:
            continue
        for container in _names_if_there(root / pod):
            newest = _newest_restart(_names_if_there(root / pod / container))
            if newest is not None:
                yield LogLocation(root / pod / container / newest, owner)


def of_replaced_pods(
    locations: Collection[LogLocation], known: Collection[PodIdentity]
) -> frozenset[Path]:
    """Return the logs of pods that another one of the same name has replaced, as in a StatefulSet.

    The kubelet removes them some time after the new pod has begun, or never: a pod that was deleted
    by force may go on logging on a node that did not hear of it.

    Args:
        locations: of all logs.
        known: pods that had been replaced before, and remain so while there are others.
    """
    by_name: dict[tuple[str, str], dict[PodIdentity, list[Path]]] = defaultdict(dict)
    for one in locations:
        if one.owner != NO_POD:
            pods = by_name[one.owner.namespace, one.owner.name]
            pods.setdefault(one.owner, []).append(one.path)
    replaced: list[Path] = []
    for pods in by_name.values():
        if len(pods) > 1:
            candidates = [owner for owner in pods if owner not in known] or list(pods)
            newest = max(candidates, key=lambda owner: (*max(map(_begun, pods[owner])), owner.uid))
            replaced += [path for owner, paths in pods.items() if owner != newest for path in paths]
    return frozenset(replaced)


def _begun(log: Path) -> tuple[int, int]:
    """Return when the pod of a log got its containers, then when the log was written last, in ns.

    Both pods may go on writing.
    """
    return written_ns(log.parent.parent), written_ns(log)


def written_ns(path: Path) -> int:
    """Return when a file or directory was written last in nanoseconds, 0 if it is gone."""
    try:
        return path.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def _newest_restart(names: list[str]) -> str | None:
    """Return the log of the latest start: `10.log` comes after `9.log`."""
    stems = [n[:-4] for n in names if n.endswith(".log") and n[:-4].isdecimal()]
    return f"{max(stems, key=int)}.log" if stems else None


def pattern_logs(pattern: Path, rejected: Counter[str] | None = None) -> Iterator[LogLocation]:
    """Yield the files whose names match a pattern; its directory is taken literally.

    Earlier files of a log beside them are read as parts of that log.

    Args:
        pattern: of paths.
        rejected: where a directory that cannot be read is counted, by reason.
    """
    try:
        names = _names(pattern.parent)
    except (FileNotFoundError, NotADirectoryError):  # nothing has been logged there yet
        return
    except OSError as error:
        if rejected is not None:
            rejected["permission" if isinstance(error, PermissionError) else "unreadable"] += 1
        return
    earlier = {
        old for name in names if fnmatch(name, pattern.name) for old in _rotated(name, names)
    }
    for name in names:
        if fnmatch(name, pattern.name) and name not in earlier:
            yield LogLocation(pattern.parent / name, NO_POD)


def _names(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in islice(entries, MAX_NAMES))


def _names_if_there(directory: Path) -> list[str]:
    try:
        return _names(directory)
    except OSError:  # removed since it was listed, or not a directory
        return []


_ROTATED = re.compile(r"(?:\.(\d{1,3})|[.-]\d{8}(?:-\d{1,10})?)(?:\.gz)?")
"""What follows the name of a log in those of its earlier files: the kubelet's date and time, or
logrotate's number (1 is the newest), or date."""


def rotated(path: Path) -> list[Path]:
    """Return the earlier files of a log, oldest first; a .tmp is an unfinished .gz."""
    return [path.parent / name for name in _rotated(path.name, _names_if_there(path.parent))]


def _rotated(log: str, names: Sequence[str]) -> list[str]:
    """Return the names of the earlier files of a log among those of its directory, oldest first."""
    found: list[tuple[int, str]] = []
    for name in names:
        match = _ROTATED.fullmatch(name, len(log)) if name.startswith(log) else None
        if match is not None:
            found.append((-int(match[1] or 0), name))
    return [name for _, name in sorted(found)]


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:  # removed since it was listed
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log has been read: in which file, and which of its earlier files were finished."""

    inode: tuple[int, int]
    offset: int
    done: tuple[str, ...]


class LogStream:
    """One log, followed across rotations, oldest file first.

    Args:
        location: its location.
        resume: its position from an earlier run of the agent.
    """

    def __init__(self, location: LogLocation, resume: Position | None) -> None:
        self.location = location
        self.skipped_bytes = 0
        self.at_end = False
        """Whether the last reading reached the end, for now."""
        self.written_at = 0.0
        """When the file that was read last had been written last before that (Unix time)."""
        self._segments: list[Segment] = []
        done = resume.done if resume else ()
        try:
            for path in self._rotated():
                # Numbered files have other names after each rotation.
                if path.name not in done or (resume and _inode(path) == resume.inode):
                    self._open(path, resume)
            self._open(location.path, resume)
        except LogRejectedError:
            self.close()
            raise

    def _rotated(self) -> list[Path]:
        """Return the earlier files that may be read, oldest first."""
        return rotated(self.location.path)[-MAX_SEGMENTS + 1 :]

    def _open(self, path: Path, resume: Position | None) -> None:
        """Append a file.

        Raises:
            LogRejectedError: the file is not to be read.
        """
        try:
            descriptor = open_log(path)
        except FileNotFoundError:
            return
        segment = Segment(descriptor, 0, compressed=path.name.endswith(".gz"))
        if resume is not None and segment.inode == resume.inode:
            segment.offset = min(resume.offset, segment.left())
            # What an earlier run read before this file is not read again.
            self._drop(self._segments)
        self._segments.append(segment)

    def look_for_rotation(self) -> None:
        """Append the newest file if it has been replaced.

        Raises:
            LogRejectedError: the file is not to be read.
        """
        try:
            status = self.location.path.stat(follow_symlinks=False)
        except OSError:  # between rename and creation, or gone with its pod
            return
        if not self._segments or (status.st_dev, status.st_ino) != self._segments[-1].inode:
            self._open(self.location.path, None)
        if len(self._segments) > MAX_SEGMENTS:
            oldest = self._segments[0]
            self.skipped_bytes += oldest.left()
            self._drop([oldest])

    def read(self) -> bytes:
        """Return the next bytes; empty at the end for now.

        Raises:
            OSError: the file cannot be read.
        """
        while self._segments:
            segment = self._segments[0]
            written_at = segment.written_at()  # before reading: what was read is not read again
            data = segment.read()
            if not data and segment.truncated():
                segment.offset = 0
                data = segment.read()
            last = len(self._segments) == 1
            # A read that returns less than requested has reached the end of the file.
            self.at_end = last and len(data) < (1 if segment.compressed else READ_BYTES)
            if data or last:
                self.written_at = written_at
                return data
            self._drop([segment])
        self.at_end = True  # it is gone
        return b""

    def left(self) -> int:
        """Return the number of bytes available and not read yet."""
        return sum(segment.left() for segment in self._segments)

    def left_lines(self) -> int:
        """Return an estimate of the number of these lines."""
        return sum(segment.left_lines() for segment in self._segments)

    def position(self, pending: int) -> Position | None:
        """Return the position, excluding `pending` bytes of a line without an end.

        None while an archived file is being read, in which reading cannot be resumed.
        """
        if not self._segments or self._segments[0].compressed:
            return None
        first = self._segments[0]
        still_open = {segment.inode for segment in self._segments}
        done = (path.name for path in self._rotated() if _inode(path) not in still_open)
        return Position(first.inode, max(0, first.offset - pending), tuple(done))

    def leave(self, pending: int) -> Position | None:
        """Return where to continue later; what is left of archived files is skipped."""
        archived = [segment for segment in self._segments if segment.compressed]
        self.skipped_bytes += sum(segment.left() for segment in archived)
        self._drop(archived)
        return self.position(pending)

    def close(self) -> None:
        """Close its files."""
        self._drop(self._segments)

    def _drop(self, segments: list[Segment]) -> None:
        for segment in list(segments):
            self.skipped_bytes += segment.skipped_bytes
            segment.close()
            self._segments.remove(segment)
