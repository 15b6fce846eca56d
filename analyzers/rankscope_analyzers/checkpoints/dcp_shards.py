"""Shards of torch.distributed.checkpoint compared with their metadata."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from rankscope_analyzers.checkpoints import torch_file, zip_directory
from rankscope_analyzers.checkpoints.dcp_metadata import Item
from rankscope_analyzers.checkpoints.problems import FileProblem, wrong_size
from rankscope_analyzers.checkpoints.stretch import Stretch, opened

END_BYTES = 22
END_MAGIC = b"PK\x05\x06"


def is_below(name: str) -> bool:
    """Return True for a path that stays inside the checkpoint's directory."""
    path = PurePosixPath(name)
    return bool(name) and "\0" not in name and not path.is_absolute() and ".." not in path.parts


def check(path: Path, items: tuple[Item, ...], *, deep: bool) -> bool:
    """Check one shard; return True if checksums were compared.

    This checks its size, the beginning of its first item and the end of its last; with `deep`,
    every item and its checksums.

    Raises:
        FileProblem: it is not whole.
    """
    with opened(path) as file:
        expected = max(item.offset + item.length for item in items)
        if file.size != expected:
            raise wrong_size(file.size, expected)
        if not deep:
            _check_edges(file, items)
            return False
        checked = [_check_item(file, item) for item in items]
        return all(checked)


def _check_edges(file: Stretch, items: tuple[Item, ...]) -> None:
    first, last = items[0], items[-1]
    _is_archive(file.part(first.offset, first.length), first)
    part = file.part(last.offset, last.length)
    if _is_archive(part, last) and part.read(last.length - END_BYTES, 4) != END_MAGIC:
        raise FileProblem("unparseable", f"has no end of {last.name[:200]!r}")


def _is_archive(part: Stretch, item: Item) -> bool:
    """Return True for an item that torch.save wrote.

    Raises:
        FileProblem: it should be one and is not; objects may be pickles as well.
    """
    head = part.read(0, 4)
    if head == zip_directory.MAGIC or not item.is_plain:
        return head == zip_directory.MAGIC
    if not item.is_tensor and (head[:1] == b"\x80" or not item.length):
        return False
    raise FileProblem("unparseable", f"has no beginning of {item.name[:200]!r}")


def _check_item(file: Stretch, item: Item) -> bool:
    """Check an item; return True if it has checksums.

    Raises:
        FileProblem: it is not whole.
    """
    part = file.part(item.offset, item.length)
    if not _is_archive(part, item):
        return False
    try:
        return torch_file.read_zip(part, deep=True).has_checksums
    except FileProblem as error:
        raise FileProblem(error.kind, f"has a damaged {item.name[:200]!r}: it {error}") from None
