"""Inspector's Prometheus files of a node: one per GPU, reread when they change, within a budget.

A file is named after the GPU that it reports on, by its writer: a file in a pod's volume is only
accepted for GPUs that the pod holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from rankscope_agent.sources.nccl_inspector import textfile
from rankscope_agent.sources.nccl_inspector.directories import Entry, open_file
from rankscope_agent.sources.nccl_inspector.textfile import Speed
from rankscope_agent.sources.training.files import RingDirectory, open_directory
from rankscope_agent.sources.training.format import RingError

MAX_GPU_FILES = 64
"""Files that are read: four times as many as the largest nodes on the market have GPUs."""

MAX_TEXTFILE_BYTES = 4 << 20
"""Largest file that is read."""

STALE_SECONDS = 600.0
"""Age at which a file belongs to a job that has ended: Inspector writes it every 30 s by default,
and removes it at exit unless it is killed."""


@dataclass(slots=True)
class _GpuFile:
    """One file as it was last read; `written` shows whether it has been replaced."""

    directory: RingDirectory
    name: str
    written: tuple[int, int, int] | None = None
    speeds: tuple[Speed, ...] = ()


class GpuSpeeds:
    """The contents of Prometheus files, by GPU.

    Args:
        held: returns the UUIDs of a pod's GPUs; None if they are unknown.
    """

    def __init__(self, held: Callable[[str], Collection[str] | None]) -> None:
        self.refused = 0
        """Number of files that report on GPUs not held by their pods, or that exceed the limit."""
        self._held = held
        self._files: dict[str, _GpuFile] = {}
        self._turn = 0

    @property
    def files(self) -> int:
        """The number of files with contents."""
        return sum(bool(file.speeds) for file in self._files.values())

    def take(self, found: dict[RingDirectory, list[Entry]]) -> None:
        """Take over the current files; of two for one GPU the first permitted one counts."""
        before, self._files, self.refused = self._files, {}, 0
        for directory, entries in found.items():
            held = self._held(directory.pod_uid) if directory.pod_uid else None
            for entry in entries:
                uuid = textfile.gpu_uuid(entry.name) or ""
                mine = not directory.pod_uid or (held is not None and uuid in held)
                if not mine or uuid in self._files or len(self._files) >= MAX_GPU_FILES:
                    self.refused += 1
                    continue
                known = before.get(uuid)
                same = known is not None and (known.directory, known.name) == (
                    directory,
                    entry.name,
                )
                self._files[uuid] = known if known and same else _GpuFile(directory, entry.name)

    def read(self, now: float, has_time: Callable[[], bool]) -> None:
        """Read what has changed, starting with a different file each time, while there is time."""
        files = list(self._files.values())
        self._turn += 1
        start = self._turn % len(files) if files else 0
        for file in (*files[start:], *files[:start]):
            if not has_time():
                return
            _read(file, now)

    def speeds(self) -> Iterator[tuple[str, Speed]]:
        """Yield UUID of the GPU, and speed of an operation on it."""
        for uuid, file in self._files.items():
            for speed in file.speeds:
                yield uuid, speed


def _read(file: _GpuFile, now: float) -> None:
    """Read a file if it has been replaced; one that cannot be read has no contents."""
    try:
        with open_directory(file.directory) as directory:
            descriptor = open_file(directory, file.name)
    except (OSError, RingError):
        descriptor = None
    if descriptor is None:
        file.written, file.speeds = None, ()
        return
    try:
        status = os.fstat(descriptor)
        written = (status.st_ino, status.st_mtime_ns, status.st_size)
        if now - status.st_mtime >= STALE_SECONDS:
            file.written, file.speeds = None, ()
        elif written != file.written:
            text = os.pread(descriptor, MAX_TEXTFILE_BYTES, 0)
            file.speeds = textfile.parse(text.decode(errors="replace"))
            file.written = written
    except OSError:
        file.written, file.speeds = None, ()
    finally:
        os.close(descriptor)
