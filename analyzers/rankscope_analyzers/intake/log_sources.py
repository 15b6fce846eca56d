"""Finds the log files of a job in files and directories."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rankscope_agent.contract.descriptor_limit import allow_descriptors
from rankscope_analyzers.intake.log_files import LogError, chunks
from rankscope_analyzers.text.sanitize import visible

MAX_FILES = 4096
"""Logs read at once: eight for each of 512 nodes."""

SPARE_DESCRIPTORS = 64
"""Descriptors for everything else: terminal, libraries, pipes among the logs."""


def opened(paths: Sequence[str]) -> Mapping[str, Iterator[bytes]]:
    """Return the chunks of all logs by name; a directory stands for the files below it.

    Links below a directory are not followed. Directories that cannot be listed are named on
    standard error.

    Raises:
        LogError: there is none, or there are too many.
    """
    return together({name: name for name in files(paths)})


def files(paths: Sequence[str]) -> Sequence[str]:
    """Return the names of all logs; a directory stands for the files below it.

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
    return found


def together(named: Mapping[str, str]) -> Mapping[str, Iterator[bytes]]:
    """Return the chunks of logs that are read at the same time.

    The soft limit of descriptors is raised as far as necessary and allowed. The logs beyond it are
    opened anew for each chunk.

    Args:
        named: the file of each log, by its name.
    """
    most = allow_descriptors(len(named) + SPARE_DESCRIPTORS) - SPARE_DESCRIPTORS
    return {
        name: chunks(file, stays_open=number < most)
        for number, (name, file) in enumerate(named.items())
    }


def _below(directory: str) -> Iterator[str]:
    for folder, folders, names in os.walk(directory, onerror=_tell):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)  # noqa: PTH118 - names of files as os.walk gives them
            if _is_regular(path):
                yield path


def _tell(error: OSError) -> None:
    why = f"{error.filename}: its logs are not read, as it cannot be listed: {error.strerror}"
    sys.stderr.write(f"{visible(why)}\n")


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:  # a log that was rotated away in the meantime
        return False
