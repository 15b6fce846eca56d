"""Inspector's Prometheus files of a node: one per GPU, read anew when they change, within a budget.

A file is named after the GPU that it reports on, by its writer: one in a pod's volume is
believed of the GPUs that the pod holds.
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
"""Files read: those of the GPUs of the largest nodes sold, four times over."""

MAX_TEXTFILE_BYTES = 4 << 20
"""Largest file read."""

STALE_SECONDS = 600.0
"""Age at which a file is of a job that has ended: Inspector writes it every 30 s by default, and
removes it at its end unless it is killed."""


@dataclass(slots=True)
class _GpuFile:
    """One file as it stood when it was last read; `written` tells when it is another one."""

    directory: RingDirectory
    name: str
    written: tuple[int, int, int] | None = None
    speeds: tuple[Speed, ...] = ()


class GpuSpeeds:
    """What Prometheus files say, by GPU.

    Args:
        held: gives the UUIDs of a pod's GPUs, None where they are unknown.
    """

    def __init__(self, held: Callable[[str], Collection[str] | None]) -> None:
        self.refused = 0
        """Files that report on GPUs that their pods do not hold, or that are too many."""
        self._held = held
        self._files: dict[str, _GpuFile] = {}
        self._turn = 0

    @property
    def files(self) -> int:
        """How many files have something to say."""
        return sum(bool(file.speeds) for file in self._files.values())

    def take(self, found: dict[RingDirectory, list[Entry]]) -> None:
        """Take the files that there are now; of two for one GPU the first permitted one counts."""
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
        """Read what has changed, beginning with another file each time, while there is time."""
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
    """Read a file if it is another one than before; one that cannot be read says nothing."""
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
