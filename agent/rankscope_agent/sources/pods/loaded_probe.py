"""Tells whether processes have loaded the probe: it maps its own file, whose name shows in /proc.

The environment of a whole node may give the probe to every program, as a SLURM TaskProlog does;
without PyTorch 2.5 or newer nothing loads it, no step is ever seen, and no job hangs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rankscope_agent.sources.kernel_files import FLAGS

YOUNG_SECONDS = 60.0
"""Age below which a process is not looked at: it may still be importing PyTorch, and no job is
called hung that early."""

AGAIN_SECONDS = 600.0
"""Time after which a process that had not loaded the probe is looked at again, if it has not become
twice as old before: a start script may prepare for minutes and then execute the trainer."""

MAX_LOOKS = 64
"""Processes looked at in one scan, which takes 1 ms each; others are looked at in later scans."""

MAX_CANDIDATES = 8
"""Processes of a rank that are looked at, oldest first: shells and wrappers, then the trainer."""

MAX_MAPS_BYTES = 8 << 20
"""Bytes read of a list of mapped files: 65,530 mappings, the kernel's limit, have 100 bytes each. A
program with PyTorch on the CPU has 50 kB."""

_CHUNK_BYTES = 1 << 16

PROBE = b"/rankscope_probe.py"

JAX = b"/jaxlib/"
"""The directory of JAX's libraries. Its programs import PyTorch, and with it the probe, for its
data loader, and make no steps that a probe sees."""

_Process = tuple[int, float]
"""A process: its PID and the Unix time at which it was started."""

_Look = tuple[bool, float]
"""Whether a process had loaded the probe, and how old it was then."""


class LoadedProbe:
    """Remembers which processes have loaded the probe; these are looked at once.

    Args:
        procfs: the node's /proc.
    """

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._looks = 0
        self._known: dict[_Process, _Look] = {}
        self._known_before: dict[_Process, _Look] = {}

    def begin_scan(self) -> None:
        """Forget the processes that the last scan did not ask about."""
        self._known_before, self._known = self._known, {}
        self._looks = 0

    def is_in_any(
        self, processes: Iterable[_Process], now_unix_seconds: float, *, given: bool
    ) -> bool:
        """Return whether one of a rank's processes has loaded the probe, and not JAX.

        Args:
            processes: those with the rank's variables, oldest first.
            now_unix_seconds: the present.
            given: whether their environment gives them the probe. While the first is young, and of
                those that may not be read, nothing else is known.
        """
        for count, process in enumerate(processes):
            age = now_unix_seconds - process[1]
            if count == 0 and age < YOUNG_SECONDS:
                return given
            if count == MAX_CANDIDATES:
                break
            if self._is_in(process, age, given=given):
                return True
        return False

    def _is_in(self, process: _Process, age: float, *, given: bool) -> bool:
        look = self._known_before.get(process)
        due = look is None or (not look[0] and age >= look[1] + min(look[1], AGAIN_SECONDS))
        if due and self._looks < MAX_LOOKS:
            self._looks += 1
            look = (self._look(process[0], given=given), age)
        if look is not None:
            self._known[process] = look
        return look is not None and look[0]

    def _look(self, pid: int, *, given: bool) -> bool:
        try:
            return names_probe(read_chunks(self._procfs / str(pid) / "maps"))
        except PermissionError:
            return given
        except OSError:  # it has ended
            return False


def names_probe(maps: Iterable[bytes]) -> bool:
    """Return whether a list of mapped files, in pieces, names the probe and not JAX's libraries."""
    found, rest = False, b""
    for piece in maps:
        text = rest + piece
        if JAX in text:
            return False
        found = found or PROBE in text
        rest = text[-len(PROBE) :]
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
