"""Finds the log files of a job in files and directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rankscope_analyzers.intake.log_files import LogError, chunks

MAX_FILES = 4096
"""Logs read at once: eight for each of 512 nodes."""


def opened(paths: Sequence[str]) -> Mapping[str, Iterator[bytes]]:
    """Return the chunks of all logs by name; a directory stands for the files below it.

    Links below a directory are not followed.

    Raises:
        LogError: there is none, or there are too many.
    """
    found: list[str] = []
    for path in paths:
        found.extend(_below(path) if Path(path).is_dir() else [path])
    if not found:
        raise LogError(f"no log in {', '.join(paths)}")
    if len(found) > MAX_FILES:
        raise LogError(f"{len(found)} files in {', '.join(paths)}, at most {MAX_FILES} are read")
    return {name: chunks(name) for name in dict.fromkeys(found)}


def _below(directory: str) -> Iterator[str]:
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)  # noqa: PTH118 - names of files as os.walk gives them
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield path
