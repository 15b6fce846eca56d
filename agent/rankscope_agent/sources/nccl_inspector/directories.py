"""Finds Inspector's directories and opens their files without trusting the writers."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from rankscope_agent.sources.training.files import RingDirectory, pod_directories

POD_FOLDER = "nccl-inspector"
"""Directory in a pod's `rankscope` volume, next to its rings."""

MAX_DIRECTORIES = 256
MAX_NAMES = 4096
"""Names read in one directory."""

LOG_NAME = re.compile(r"[\w.-]{1,200}-pid\d{1,10}\.log")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as listed in its directory: its number of links, its owner, and its last change."""

    name: str
    inode: tuple[int, int]
    links: int
    user: int
    written_ns: int


def directories(kubelet: Path, patterns: tuple[Path, ...]) -> Iterator[RingDirectory]:
    """Yield the directories that may exist: those of pods and the configured ones.

    Raises:
        OSError: the kubelet's directory of pods exists but cannot be read.
    """
    for volume in pod_directories(kubelet)[:MAX_DIRECTORIES]:
        yield RingDirectory(volume.root, (*volume.parts, POD_FOLDER), volume.pod_uid)
    for pattern in patterns:
        for name in _names(pattern.parent):
            if fnmatch(name, pattern.name):
                yield RingDirectory(pattern.parent, (name,), "")


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in islice(entries, MAX_NAMES))
    except OSError:
        return []


def list_files(directory: int) -> list[Entry]:
    """Return the regular files of an open directory.

    Raises:
        OSError: it cannot be read.
    """
    found = []
    with os.scandir(directory) as entries:
        for entry in islice(entries, MAX_NAMES):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # removed since it was listed
                continue
            if stat.S_ISREG(status.st_mode):
                inode = (status.st_dev, status.st_ino)
                written_ns = status.st_mtime_ns
                found.append(Entry(entry.name, inode, status.st_nlink, status.st_uid, written_ns))
    return sorted(found, key=lambda entry: entry.name)


def open_file(directory: int, name: str) -> int | None:
    """Open a regular file with a single link; return its descriptor, None for anything else.

    O_PATH refers to a file without opening it, so that a device put in its place is not touched.
    """
    try:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        # If a file has several links, others may be anywhere, and each would be read.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return None
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        os.close(handle)
