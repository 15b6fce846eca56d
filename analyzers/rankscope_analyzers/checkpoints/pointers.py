"""Files and links that name a run's latest checkpoint, and whether it is still the latest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rankscope_analyzers.checkpoints.inventory import Folder
from rankscope_analyzers.checkpoints.problems import FileProblem
from rankscope_analyzers.checkpoints.stretch import opened

NAMES = frozenset(
    {
        "latest",  # DeepSpeed, fairscale
        "latest_checkpointed_iteration.txt",  # Megatron
        *("latest.txt", "latest_checkpoint.txt", "last_checkpoint", "last_checkpoint.txt"),
    }
)
"""Files that hold the name of a directory or file next to them, or its number."""

_LINK = re.compile(r"^(?:latest|last|newest|current)(?:[-_.].*)?$", re.IGNORECASE)
MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer.

    Args:
        path: relative to the directory that is examined.
        target: the name that it refers to, in the same directory; a number for Megatron's.
        modified: Unix seconds.
        step: the number that it holds, if any.
        leads: True if something of that name exists, even if it is no checkpoint.
    """

    path: str
    target: str
    modified: float
    step: int | None
    leads: bool

    @property
    def folder(self) -> str:
        """Return the directory that it is in."""
        return self.path.rpartition("/")[0]

    @property
    def is_written_last(self) -> bool:
        """Return True for those that libraries write when a checkpoint is whole."""
        return self.path.rpartition("/")[2] in {"latest", "latest_checkpointed_iteration.txt"}


def read(root: Path, folder: Folder) -> Iterator[Pointer]:
    """Yield the pointers in a directory and below."""
    for inner in folder.below():
        for name, link in inner.links.items():
            if _LINK.match(name):
                target = PurePosixPath(link).name
                leads = (root / inner.path / name).exists()
                yield Pointer(_in(inner, name), target, 0.0, None, leads)
        for name, file in inner.files.items():
            if name in NAMES and file.link is None and file.size <= MOST_BYTES:
                pointer = _of_file(root, file.path, file.modified)
                if pointer is not None:
                    yield pointer


def _of_file(root: Path, path: str, modified: float) -> Pointer | None:
    try:
        with opened(root / path) as file:
            text = file.read(0, MOST_BYTES).decode("utf-8", "replace").strip()
    except FileProblem:
        return None
    first = text.splitlines()[0].strip() if text else ""
    if not first:
        return None
    if first.isdecimal() and len(first) <= 12:
        number = int(first)
        target, step = f"iter_{number:07d}", number
    else:
        target, step = PurePosixPath(first).name, None
    leads = bool(target) and (root / path).with_name(target).exists()
    return Pointer(path, target, modified, step, leads)


def _in(folder: Folder, name: str) -> str:
    return f"{folder.path}/{name}" if folder.path else name
