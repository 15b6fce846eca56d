"""Finds the log files of a job in files and directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from rankscope_agent.contract.descriptor_limit import allow_descriptors
from rankscope_analyzers.intake.log_files import LogError, Tell, chunks, tell_user

MAX_FILES = 4096
"""Logs read at once: eight for each of 512 nodes."""

SPARE_DESCRIPTORS = 64
"""Descriptors for everything else: terminal, libraries, pipes among the logs."""


def opened(paths: Sequence[str], tell: Tell = tell_user) -> Mapping[str, Iterator[bytes]]:
    """Return the chunks of all logs by name; a directory stands for the files below it.

    Links below a directory are not followed.

    Args:
        paths: files and directories. One of these files that cannot be read raises a LogError.
        tell: is told which files below directories, or directories, cannot be read.

    Raises:
        LogError: there is none, or there are too many.
    """
    logs = together({name: name for name in files(paths, tell)}, tell)
    return {
        name: pieces if name in paths else readable(pieces, tell) for name, pieces in logs.items()
    }


def opened_in_turn(paths: Sequence[str], tell: Tell) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the name and the chunks of each log, for callers that read one after the other.

    Args:
        paths: as in `opened`.
        tell: is told what cannot be read.

    Raises:
        LogError: there is none, or there are too many.
    """
    for name in files(paths, tell):
        pieces = chunks(name, tell=tell)
        yield name, pieces if name in paths else readable(pieces, tell)


def readable(pieces: Iterator[bytes], tell: Tell) -> Iterator[bytes]:
    """Yield what can be read of a log, and tell why the rest cannot."""
    try:
        yield from pieces
    except LogError as error:
        tell(str(error))


def files(paths: Sequence[str], tell: Tell = tell_user) -> Sequence[str]:
    """Return the names of all logs; a directory stands for the files below it.

    Args:
        paths: files and directories.
        tell: is told which directories cannot be listed.

    Raises:
        LogError: there is none, or there are too many.
    """
    found: list[str] = []
    for path in paths:
        found.extend(_below(path, tell) if Path(path).is_dir() else [path])
    if not found:
        raise LogError(f"no log in {', '.join(paths)}")
    if len(found) > MAX_FILES:
        raise LogError(f"{len(found)} files in {', '.join(paths)}, at most {MAX_FILES} are read")
    return found


def together(named: Mapping[str, str], tell: Tell = tell_user) -> Mapping[str, Iterator[bytes]]:
    """Return the chunks of logs that are read at the same time.

    The soft limit of descriptors is raised as far as necessary and allowed. The logs beyond it are
    opened anew for each chunk.

    Args:
        named: the file of each log, by its name.
        tell: is told which compressed logs are damaged or cut off.
    """
    most = allow_descriptors(len(named) + SPARE_DESCRIPTORS) - SPARE_DESCRIPTORS
    return {
        name: chunks(file, stays_open=number < most, tell=tell)
        for number, (name, file) in enumerate(named.items())
    }


def _below(directory: str, tell: Tell) -> Iterator[str]:
    for folder, folders, names in os.walk(directory, onerror=partial(_tell_unlisted, tell)):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)  # noqa: PTH118 - names of files as os.walk gives them
            if _is_regular(path):
                yield path


def _tell_unlisted(tell: Tell, error: OSError) -> None:
    tell(f"{error.filename}: its logs are not read, as it cannot be listed: {error.strerror}")


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:  # a log that was rotated away in the meantime
        return False
