"""Files that torch.save writes: zip archives, and the series of pickles of PyTorch before 1.6.

Only the archive's directory and the pickle of the structure are read, tensors only on request. The
sizes of storages in the pickle are compared with those in the archive. Formats:
torch/serialization.py, caffe2/serialize/inline_container.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract.pickle_limits import PickleCutOff, UnsafePickle
from rankscope_analyzers.checkpoints import symbolic_pickle, zip_directory
from rankscope_analyzers.checkpoints.problems import FileProblem, wrong_size
from rankscope_analyzers.checkpoints.stretch import Stretch
from rankscope_analyzers.checkpoints.symbolic_pickle import CHECKPOINT, Storage, walk
from rankscope_analyzers.checkpoints.zip_directory import Member

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
FIRST_READ = 1 << 20
"""Bytes read of a series of pickles, whose length is not stored; eight times as many if that is too
short."""

ELEMENT_BYTES: Mapping[str, int] = {
    f"torch.{kind}Storage": size
    for size, kinds in {
        1: ("Byte", "Char", "Bool", "Untyped", "QInt8", "QUInt8"),
        2: ("Half", "BFloat16", "Short"),
        4: ("Float", "Int", "QInt32"),
        8: ("Double", "Long", "ComplexFloat"),
        16: ("ComplexDouble",),
    }.items()
    for kind in kinds
} | {"torch.storage.UntypedStorage": 1}


@dataclass(frozen=True, slots=True)
class TorchContent:
    """What a file holds: its structure as symbols, and whether its bytes have checksums."""

    value: Any
    has_checksums: bool
    structure_read: bool = True


def read_zip(
    archive: Stretch, *, deep: bool, structure: Callable[[int], bool] = lambda size: True
) -> TorchContent:
    """Check an archive.

    Args:
        archive: all of it.
        deep: read every member and compare its checksum.
        structure: called with the size of the pickle, returns whether to read it and compare the
            sizes of storages with it.

    Raises:
        FileProblem: it is not whole, or torch.save did not write it.
    """
    members = zip_directory.members(archive)
    pickle_name = next((name for name in members if name.endswith("/data.pkl")), None)
    if pickle_name is None:
        raise FileProblem("unparseable", "is an archive without data.pkl")
    # Without checksums (torch.serialization.set_crc32_options) all are zero.
    has_checksums = any(member.checksum for member in members.values() if member.size)
    if deep:
        _check_members(archive, members.values(), has_checksums)
    body = zip_directory.content(archive, members[pickle_name])
    if not structure(body.size):
        return TorchContent(None, has_checksums, structure_read=False)
    value = _structure(body.read(0, CHECKPOINT.data_bytes + 1))
    _check_storages(value, members, pickle_name.removesuffix("data.pkl"))
    return TorchContent(value, has_checksums)


def _check_members(archive: Stretch, members: Iterable[Member], has_checksums: bool) -> None:
    for member in members:
        if has_checksums and member.stored:
            zip_directory.check_checksum(archive, member)
        else:
            zip_directory.content(archive, member)


def _structure(body: bytes) -> Any:
    try:
        return symbolic_pickle.loads(body)
    except UnsafePickle as error:
        raise _unread(error) from None


def _unread(error: UnsafePickle) -> FileProblem:
    if error.reason == "too_large":
        return FileProblem("too_large", f"has a structure that is not read: {error}")
    return FileProblem("unparseable", f"has a structure that is not a pickle: {error}")


def _check_storages(value: Any, members: Mapping[str, Member], prefix: str) -> None:
    for one in walk(value):
        if not isinstance(one, Storage):
            continue
        member = members.get(f"{prefix}data/{one.key}")
        if member is None:
            raise FileProblem("missing", f"lacks the tensor data {one.key[:80]!r}")
        width = ELEMENT_BYTES.get(one.kind)
        if width is not None and member.stored and member.size != one.elements * width:
            raise FileProblem(
                "wrong_size",
                f"holds {member.size} bytes of tensor data {one.key[:80]!r} instead of"
                f" {one.elements * width}",
            )


def read_pickles(file: Stretch) -> TorchContent:
    """Check a file of PyTorch before 1.6, or any other pickle.

    Raises:
        FileProblem: it is not whole.
    """
    count = FIRST_READ
    while True:
        body = file.read(0, count)
        try:
            return _pickles(file, body)
        except PickleCutOff as error:
            if count >= file.size:
                raise FileProblem("truncated", f"ends in its structure: {error}") from None
            if count > CHECKPOINT.data_bytes:
                raise FileProblem("too_large", "has a structure that is not read") from None
            count *= 8
        except UnsafePickle as error:
            raise _unread(error) from None


def _pickles(file: Stretch, body: bytes) -> TorchContent:
    values: list[Any] = []
    place = 0
    value, place = symbolic_pickle.loads_first(body)
    if value != LEGACY_MAGIC:
        return TorchContent(value, has_checksums=False)
    for _ in range(4):  # protocol, system, structure, keys of storages
        value, end = symbolic_pickle.loads_first(body[place:])
        values.append(value)
        place += end
    _, _, structure, keys = values
    _check_legacy_size(file, place, structure, keys)
    return TorchContent(structure, has_checksums=False)


def _check_legacy_size(file: Stretch, place: int, structure: Any, keys: Any) -> None:
    """Compare the file's size with the storages behind the pickles: a count each, then elements."""
    storages = {one.key: one for one in walk(structure) if isinstance(one, Storage)}
    known = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not known or storages.keys() != set(keys):
        raise FileProblem("unparseable", "lists other storages than its structure names")
    widths = [ELEMENT_BYTES.get(one.kind) for one in storages.values()]
    if None in widths:
        return
    sizes = (8 + one.elements * ELEMENT_BYTES[one.kind] for one in storages.values())
    expected = place + sum(sizes)
    if file.size != expected:
        raise wrong_size(file.size, expected)
