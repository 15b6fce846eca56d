"""The report on a directory of checkpoints: the last good one, what is wrong, how often to save."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope_analyzers.checkpoints import (
    digest_list,
    grouping,
    inventory,
    judgement,
    open_files,
    pointers,
    storage_kind,
)
from rankscope_analyzers.checkpoints.checkpoint import Checkpoint
from rankscope_analyzers.checkpoints.effort import Effort
from rankscope_analyzers.checkpoints.grouping import Group
from rankscope_analyzers.checkpoints.inventory import Inventory, StoredFile
from rankscope_analyzers.checkpoints.pointers import Pointer
from rankscope_analyzers.checkpoints.problems import Problem
from rankscope_analyzers.checkpoints.storage_kind import StorageKind

SECOND_LOOK_SECONDS = 1.0
"""A file that grows in the meantime is being written, perhaps by another node, and not damaged."""


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    """What was found out about a directory.

    Args:
        root: the directory.
        checkpoints: the latest first.
        pointers: files and links that name the latest, each with what is wrong with it or "".
        storage: the storage that the directory is on.
        files: how many files it holds.
        is_cut: True if it holds more files than were listed.
        unread: directories that could not be listed, and why.
        skipped_structures: number of shards whose sizes were not compared with their structure.
        deep: True if checksums were compared.
        digests: number of files in the list of checksums, all of which were compared.
        unplaced: problems of files in that list that are of no checkpoint.
    """

    root: Path
    checkpoints: Sequence[Checkpoint]
    pointers: Sequence[tuple[Pointer, str]]
    storage: StorageKind | None
    files: int
    is_cut: bool
    unread: Mapping[str, str]
    skipped_structures: int
    deep: bool
    digests: int = 0
    unplaced: Sequence[Problem] = ()

    @property
    def last_good(self) -> Checkpoint | None:
        """Return the latest checkpoint that is whole."""
        return judgement.last_good(self.checkpoints)

    @property
    def seconds_between(self) -> float | None:
        """Return the median time between the ends of checkpoints, None for fewer than three."""
        good = self.last_good
        if good is None:
            return None
        of_run = [one for one in self.checkpoints if _kin(one) == _kin(good)]
        ends = sorted(one.group.modified for one in of_run if one.state == "complete")
        gaps = [later - earlier for earlier, later in itertools.pairwise(ends)]
        return statistics.median(gaps) if len(gaps) >= 2 and max(gaps) >= 1 else None


def examine(
    root: Path,
    *,
    deep: bool = False,
    digests: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
) -> DirectoryReport:
    """Examine a directory of checkpoints, or one checkpoint.

    Args:
        root: the directory, or a file.
        deep: read everything and compare the checksums of the formats.
        digests: checksums of files, which are compared, by their names relative to the directory.
        clock: returns Unix seconds.
        wait: waits for the given seconds.

    Raises:
        OSError: the directory cannot be listed.
    """
    listed = _listed(root)
    known = list(pointers.read(listed.root, listed.folder))
    effort = Effort(deep=deep)
    groups = list(grouping.groups(listed.folder))
    closed = [*_closed(listed)]
    different = digest_list.problems(listed.root, digests or {})
    extra = digest_list.placed([*different, *closed], groups)
    judged = judgement.judge(
        listed.root,
        groups,
        known,
        effort,
        clock(),
        open_files.writers(listed.root),
        extra,
    )
    looked = _second_look(root, judged, clock, wait)
    return DirectoryReport(
        root=root,
        checkpoints=looked,
        pointers=[(pointer, pointer_problem(pointer, looked)) for pointer in known],
        storage=storage_kind.of(listed.root),
        files=len(listed.folder.all_files()),
        is_cut=listed.is_cut,
        unread=listed.unread,
        skipped_structures=effort.skipped_structures,
        deep=deep,
        digests=len(digests or {}),
        unplaced=[one for one in extra.get(None, ()) if one not in closed],
    )


def _listed(root: Path) -> Inventory:
    if not root.is_file():
        return inventory.take(root)
    status = root.stat()
    alone = inventory.Folder("", "")
    alone.files[root.name] = StoredFile(root.name, status.st_size, status.st_mtime)
    return Inventory(root.parent, alone)


def _closed(listed: Inventory) -> Iterator[Problem]:
    for folder, reason in listed.unread.items():
        yield Problem("unreadable", folder, f"cannot be listed: {reason}")


def _second_look(
    root: Path,
    judged: Sequence[Checkpoint],
    clock: Callable[[], float],
    wait: Callable[[float], None],
) -> Sequence[Checkpoint]:
    """Change a verdict from damaged to being written for what has changed since it was listed.

    What was removed in the meantime is left out: old checkpoints are deleted file by file.
    """
    damaged = [one for one in judged if one.state == "damaged"]
    if not damaged:
        return judged
    if any(clock() - one.group.modified < judgement.WRITING_SECONDS for one in damaged):
        wait(SECOND_LOOK_SECONDS)
    now = {one.name: _times(one) for one in grouping.groups(_listed(root).folder)}
    kept = []
    for one in judged:
        times = now.get(one.group.name)
        if one.state != "damaged" or times == _times(one.group):
            kept.append(one)
        elif times is not None:
            kept.append(_being_written(one))
    return kept


def _times(group: Group) -> Mapping[str, tuple[int, float]]:
    return {name: (file.size, file.modified) for name, file in group.files.items()}


def _being_written(one: Checkpoint) -> Checkpoint:
    return Checkpoint(
        group=one.group,
        state="being_written",
        problems=one.problems,
        step=one.step,
        parts=one.parts,
        foreign=one.foreign,
        has_checksums=one.has_checksums,
    )


def _kin(one: Checkpoint) -> tuple[str, str, bool]:
    """Return what the checkpoints of one run share: directory, layout, whether they have steps."""
    return _folder(one), one.group.layout, one.step is None


def pointer_problem(pointer: Pointer, checkpoints: Sequence[Checkpoint]) -> str:
    """Return what is wrong with a pointer, "" for nothing."""
    beside = [one for one in checkpoints if _folder(one) == pointer.folder]
    meant = next((one for one in beside if one.name.rpartition("/")[2] == pointer.target), None)
    if meant is None:
        return "" if pointer.leads else f"names {pointer.target}, which does not exist"
    if meant.state != "complete":
        return f"names {pointer.target}, which is {meant.state.replace('_', ' ')}"
    newer = [
        one
        for one in beside[: beside.index(meant)]
        if one.state == "complete" and one.group.layout == meant.group.layout
    ]
    if newer and newer[0].step != meant.step:
        return f"names {pointer.target}, and {newer[0].name} is newer and whole"
    return ""


def _folder(checkpoint: Checkpoint) -> str:
    return checkpoint.group.name.rpartition("/")[0]


def pointer_problems(report: DirectoryReport) -> list[Problem]:
    """Return problems of pointers as problems of their files."""
    return [Problem("stale_pointer", one.path, what) for one, what in report.pointers if what]
