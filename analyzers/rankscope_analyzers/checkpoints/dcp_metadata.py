"""The `.metadata` of torch.distributed.checkpoint: what each shard must hold, and where.

Format: torch/distributed/checkpoint/metadata.py and filesystem.py, whose classes are read as
symbols.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rankscope_analyzers.checkpoints.problems import FileProblem
from rankscope_analyzers.checkpoints.symbolic_pickle import Call, OpaqueKey

MODULE = "torch.distributed.checkpoint"


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of a tensor, or an object, in a shard.

    Args:
        name: of the tensor or object in the state dict.
        offset: of its first byte in the file.
        length: in bytes.
        is_tensor: True for a tensor, False for an object.
        is_plain: True if torch.save wrote it without compression or other transforms.
    """

    name: str
    offset: int
    length: int
    is_tensor: bool
    is_plain: bool


@dataclass(frozen=True, slots=True)
class DcpMetadata:
    """The components of a checkpoint.

    Args:
        names: its tensors and objects.
        shards: items by their file, ordered by offset.
        gaps: names of tensors of which the metadata itself lacks pieces.
    """

    names: tuple[str, ...]
    shards: Mapping[str, tuple[Item, ...]]
    gaps: tuple[str, ...]


def read(value: Any) -> DcpMetadata:
    """Return the content of the metadata.

    Raises:
        FileProblem: that library did not write it.
    """
    if not isinstance(value, Call) or value.function != f"{MODULE}.metadata.Metadata":
        raise FileProblem("unparseable", "is not metadata of torch.distributed.checkpoint")
    fields = value.attributes()
    tensors, storage = fields.get("state_dict_metadata"), fields.get("storage_data")
    if not isinstance(tensors, dict) or not isinstance(storage, dict):
        raise FileProblem("unparseable", "does not state what is stored where")
    shards, pieces = _shards(storage)
    names = tuple(name for name in tensors if isinstance(name, str))
    return DcpMetadata(names, shards, tuple(_gaps(tensors, pieces)))


def _shards(
    storage: Mapping[Any, Any],
) -> tuple[dict[str, tuple[Item, ...]], Mapping[str, set[tuple[int, ...]]]]:
    shards: dict[str, list[Item]] = defaultdict(list)
    pieces: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for key, info in storage.items():
        name, offset = _index(key)
        file, item = _stored(name, info, is_tensor=offset is not None)
        shards[file].append(item)
        pieces[name].add(offset or ())
    ordered = {
        file: tuple(sorted(items, key=lambda item: item.offset)) for file, items in shards.items()
    }
    for file, items in ordered.items():
        _check_overlaps(file, items)
    return ordered, pieces


def _index(key: Any) -> tuple[str, tuple[int, ...] | None]:
    made = key.value if isinstance(key, OpaqueKey) else key
    if isinstance(made, Call):
        fields = made.attributes()
        name, offset = fields.get("fqn"), fields.get("offset")
        if isinstance(name, str):
            return name, _sizes(offset)
    raise FileProblem("unparseable", "stores an item that it does not name")


def _stored(name: str, info: Any, *, is_tensor: bool) -> tuple[str, Item]:
    fields = info.attributes() if isinstance(info, Call) else {}
    match (fields.get("relative_path"), fields.get("offset"), fields.get("length")):
        case (str(file), int(offset), int(length)) if offset >= 0 and length >= 0:
            # Only files with this suffix hold what torch.save writes (DEFAULT_SUFFIX).
            is_plain = file.endswith(".distcp") and not fields.get("transform_descriptors")
            return file, Item(name, offset, length, is_tensor, is_plain)
    raise FileProblem("unparseable", f"does not state where {name[:200]!r} lies")


def _check_overlaps(file: str, items: tuple[Item, ...]) -> None:
    for before, after in itertools.pairwise(items):
        if before.offset + before.length > after.offset:
            raise FileProblem(
                "unparseable", f"puts {after.name[:200]!r} onto {before.name[:200]!r} in {file}"
            )


def _gaps(tensors: Mapping[Any, Any], pieces: Mapping[str, set[tuple[int, ...]]]) -> Iterator[str]:
    """Yield tensors whose pieces are not all stored, or do not fill them."""
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Call):
            continue
        if not tensor.function.endswith(".TensorStorageMetadata"):
            if name not in pieces:
                yield name
            continue
        fields = tensor.attributes()
        size, chunks = _sizes(fields.get("size")), fields.get("chunks")
        if size is not None and isinstance(chunks, list):
            places = [_chunk(chunk) for chunk in chunks]
            stored = pieces.get(name, set())
            if not {offset for offset, _ in places} <= stored or (
                sum(volume for _, volume in places) < math.prod(size)
            ):
                yield name


def _chunk(chunk: Any) -> tuple[tuple[int, ...], int]:
    fields = chunk.attributes() if isinstance(chunk, Call) else {}
    offsets, sizes = _sizes(fields.get("offsets")), _sizes(fields.get("sizes"))
    if offsets is None or sizes is None:
        raise FileProblem("unparseable", "describes a piece of a tensor without its offset")
    return offsets, math.prod(sizes)


def _sizes(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, tuple) and len(value) <= 64 and all(type(one) is int for one in value):
        return value
    return None
