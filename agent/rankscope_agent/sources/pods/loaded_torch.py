"""Tells whether processes have loaded PyTorch: the probe begins to run when they do.

The environment of a whole node may give the probe to every program, as a SLURM TaskProlog does;
of programs without PyTorch no step is ever seen, and they do not hang.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rankscope_agent.sources.kernel_files import FLAGS

YOUNG_SECONDS = 60.0
"""Age below which a process is not looked at: it may still be importing PyTorch, and no job is
called hung that early."""

AGAIN = 6
"""Scans after which a process that had not loaded PyTorch is looked at again: a minute."""

MAX_LOOKS = 64
"""Processes looked at in one scan, which takes 1 ms each; others are looked at in later scans."""

MAX_CANDIDATES = 8
"""Processes of a rank that are looked at, oldest first: shells and wrappers, then the trainer."""

MAX_MAPS_BYTES = 8 << 20
"""Bytes read of a list of mapped files: 65,530 mappings, the kernel's limit, have 100 bytes each. A
program with PyTorch on the CPU has 50 kB."""

_CHUNK_BYTES = 1 << 16

TORCH = b"/libtorch"
"""Begin of the names of PyTorch's libraries: libtorch.so, libtorch_cpu.so, libtorch_python.so."""

JAX = b"/jaxlib/"
"""The directory of JAX's libraries. Its programs import PyTorch for its data loader, and make no
steps that a probe sees."""

_Process = tuple[int, float]
"""A process: its PID and the Unix time at which it was started."""


class LoadedTorch:
    """Remembers which processes have loaded PyTorch; each is looked at rarely, or once if it has.

    Args:
        procfs: the node's /proc.
    """

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._scans = self._looks = 0
        self._known: dict[_Process, bool] = {}
        self._known_before: dict[_Process, bool] = {}

    def begin_scan(self) -> None:
        """Forget the processes that the last scan did not ask about."""
        self._known_before, self._known = self._known, {}
        self._scans, self._looks = self._scans + 1, 0

    def is_in_any(self, processes: Iterable[_Process], now_unix_seconds: float) -> bool:
        """Return whether one of a rank's processes has loaded PyTorch, and not JAX.

        True as well while the first is young, and of what may not be read: nothing is known then.

        Args:
            processes: those with the rank's variables, oldest first.
            now_unix_seconds: the present.
        """
        for count, process in enumerate(processes):
            if count == 0 and now_unix_seconds - process[1] < YOUNG_SECONDS:
                return True
            if count == MAX_CANDIDATES:
                break
            if self._is_in(process):
                return True
        return False

    def _is_in(self, process: _Process) -> bool:
        known = self._known_before.get(process)
        due = known is None or (not known and (self._scans + process[0]) % AGAIN == 0)
        if due and self._looks < MAX_LOOKS:
            self._looks += 1
            known = self._look(process[0])
        if known is not None:
            self._known[process] = known
        return bool(known)

    def _look(self, pid: int) -> bool:
        try:
            return runs_torch(read_chunks(self._procfs / str(pid) / "maps"))
        except PermissionError:
            return True
        except OSError:  # it has ended
            return False


def runs_torch(maps: Iterable[bytes]) -> bool:
    """Return whether a list of mapped files, in pieces, names PyTorch's libraries and not JAX's."""
    found, rest = False, b""
    for piece in maps:
        text = rest + piece
        if JAX in text:
            return False
        found = found or TORCH in text
        rest = text[-len(TORCH) :]
    return found


def read_chunks(path: Path) -> Iterator[bytes]:
    """Yield the first 8 MiB of a file.

    Raises:
        OSError: it cannot be read.
    """
    left = MAX_MAPS_BYTES
    descriptor = os.open(path, FLAGS)
    try:
        while left > 0 and (chunk := os.read(descriptor, min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk
    finally:
        os.close(descriptor)
