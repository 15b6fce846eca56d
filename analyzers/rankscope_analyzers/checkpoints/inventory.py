"""The files below a directory, by name, size and time; no file is opened and no link followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MAX_ENTRIES = 500_000
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, or a link to one.

    Args:
        path: relative to the directory that is examined.
        size: in bytes, of a link's target for links.
        modified: Unix seconds.
        link: a link's target, None for files.
    """

    path: str
    size: int
    modified: float
    link: str | None = None

    @property
    def name(self) -> str:
        """Return the last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(slots=True)
class Folder:
    """A directory with its entries; `path` is relative to the directory that is examined."""

    path: str
    name: str
    files: dict[str, StoredFile] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def below(self) -> Iterator[Folder]:
        """Yield it and all directories below it."""
        yield self
        for inner in self.folders.values():
            yield from inner.below()

    def all_files(self) -> Mapping[str, StoredFile]:
        """Return the files in it and below by their paths relative to it."""
        skip = len(self.path) + 1 if self.path else 0
        return {file.path[skip:]: file for inner in self.below() for file in inner.files.values()}


@dataclass(slots=True)
class Inventory:
    """What is below a directory.

    Args:
        root: the directory that is examined.
        folder: its entries.
        unread: directories that could not be listed, and why.
        is_cut: True if there is more than is listed.
    """

    root: Path
    folder: Folder
    unread: dict[str, str] = field(default_factory=dict)
    entries: int = 0
    is_cut: bool = False


def take(root: Path, limit: int = MAX_ENTRIES) -> Inventory:
    """List a directory and what is below it.

    Raises:
        OSError: the directory itself cannot be listed.
    """
    inventory = Inventory(root, Folder("", root.resolve().name))
    with os.scandir(root):
        pass
    _fill(inventory, inventory.folder, limit, 0)
    return inventory


def _fill(inventory: Inventory, folder: Folder, limit: int, depth: int) -> None:
    try:
        with os.scandir(inventory.root / folder.path) as entries:
            for entry in entries:
                if inventory.entries >= limit:
                    inventory.is_cut = True
                    break
                inventory.entries += 1
                _add(folder, entry)
    except OSError as error:
        inventory.unread[folder.path] = error.strerror or str(error)
    for inner in folder.folders.values():
        if depth >= MAX_DEPTH:
            inventory.is_cut = True
            return
        _fill(inventory, inner, limit, depth + 1)


def _add(folder: Folder, entry: os.DirEntry[str]) -> None:
    path = str(PurePosixPath(folder.path, entry.name))
    if entry.is_symlink():
        link = _link(entry.path)
        folder.links[entry.name] = link
        status = _status(entry, follow=True)
        if status is not None and stat.S_ISREG(status.st_mode):
            file = StoredFile(path, status.st_size, status.st_mtime, link)
            folder.files[entry.name] = file
    elif entry.is_dir(follow_symlinks=False):
        folder.folders[entry.name] = Folder(path, entry.name)
    elif entry.is_file(follow_symlinks=False):
        status = _status(entry, follow=False)
        if status is not None:
            folder.files[entry.name] = StoredFile(path, status.st_size, status.st_mtime)


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _status(entry: os.DirEntry[str], *, follow: bool) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=follow)
    except OSError:
        return None  # it was removed in the meantime, or the link is broken
