"""Processes of this machine that have files of a checkpoint open for writing, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def writers(root: Path, proc: Path = PROC) -> Mapping[str, frozenset[int]]:
    """Return the processes that write files below a directory, by the files' relative paths.

    Processes of other users are visible only to root, those of other machines never.
    """
    prefix = f"{root.resolve()}/"
    pids: dict[str, set[int]] = defaultdict(set)
    for process in _processes(proc):
        for descriptor, target in _descriptors(process):
            if target.startswith(prefix) and _is_for_writing(process, descriptor):
                pids[target[len(prefix) :].removesuffix(" (deleted)")].add(int(process.name))
    return {path: frozenset(numbers) for path, numbers in pids.items()}


def _processes(proc: Path) -> Iterator[Path]:
    try:
        yield from (one for one in proc.iterdir() if one.name.isdigit())
    except OSError:
        return


def _descriptors(process: Path) -> Iterator[tuple[str, str]]:
    folder = f"{process}/fd"  # of all processes together there are many: strings, not paths
    try:
        descriptors = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for descriptor in descriptors:
        with suppress(OSError):  # it was closed in the meantime
            yield descriptor, os.readlink(f"{folder}/{descriptor}")  # noqa: PTH115


def _is_for_writing(process: Path, descriptor: str) -> bool:
    """Return True for O_WRONLY or O_RDWR in `fdinfo` (proc_pid_fdinfo(5), octal flags)."""
    try:
        lines = (process / "fdinfo" / descriptor).read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return bool(int(flags, 8) & os.O_ACCMODE)
