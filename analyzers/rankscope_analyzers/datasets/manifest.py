"""A dataset's manifest: its shards with their sizes and checksums. Pure.

Four formats are supported: JSON with `shards`, our own; MosaicML Streaming's index.json;
WebDataset's index (wids); and the output of sha256sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from zlib import crc32

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.checkpoints import digest_list

MAX_BYTES = 256 << 20
"""Bytes of a manifest: a million shards with long names."""

_DIGEST = re.compile("|".join(f"[0-9a-fA-F]{{{length}}}" for length in digest_list.ALGORITHMS))


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of the dataset.

    Args:
        path: relative to the dataset's directory.
        size: in bytes, None if the manifest has none.
        algorithm: of its checksum, "" for none.
        digest: in lower-case hexadecimal digits, "" for none.
    """

    path: str
    size: int | None
    algorithm: str
    digest: str

    @property
    def name_crc32(self) -> int:
        """Return the CRC-32 of its name without the directory, which the probe identifies it by."""
        return crc32(self.path.rpartition("/")[2].encode(errors="surrogateescape"))


def parse(text: bytes) -> Sequence[Shard]:
    """Return the shards of a manifest.

    Raises:
        ValueError: it has none of the known formats, or names a file outside of the dataset.
    """
    if text.lstrip()[:1] != b"{":
        digests = digest_list.read(text.decode(errors="surrogateescape"))
        found = [_shard(name, None, [digest]) for name, digest in digests.items()]
    else:
        found = list(_of_json(untrusted_json.read(text)))
    if not found:
        raise ValueError("names no shards")
    return found


def _of_json(document: Any) -> Iterator[Shard]:
    entries = document.get("shards") or document.get("shardlist")
    if not isinstance(entries, list):
        raise ValueError('has no list "shards" or "shardlist"')
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            raise ValueError(f"shard {number} is not an object")
        # Streaming: the store holds the compressed file, if there is one.
        part = entry.get("zip_data") or entry.get("raw_data") or entry
        if not isinstance(part, Mapping):
            raise ValueError(f"shard {number} has no data that is an object")
        path = part.get("path") or part.get("basename") or part.get("url")
        if not isinstance(path, str):
            raise ValueError(f"shard {number} has no path")
        size = part.get("bytes", part.get("filesize"))
        yield _shard(path, size if type(size) is int and size >= 0 else None, _digests(part))


def _digests(part: Mapping[str, Any]) -> Sequence[Any]:
    """Return the checksums with known names: next to the path, or separately as `hashes`."""
    apart = part.get("hashes")
    found = {**part, **(apart if isinstance(apart, Mapping) else {})}
    return [found.get(name) for name in (*digest_list.ALGORITHMS.values(), "md5sum")]


def _shard(path: str, size: int | None, digests: Sequence[Any]) -> Shard:
    """Return a shard with the longest of its valid checksums."""
    clean = PurePosixPath(path.removeprefix("file:"))
    if clean.is_absolute() or ".." in clean.parts or "\0" in path or not clean.name:
        raise ValueError(f"{path!r} is not a path below the dataset's directory")
    known = [one for one in digests if isinstance(one, str) and _DIGEST.fullmatch(one)]
    best = max(known, key=len, default="")
    return Shard(str(clean), size, digest_list.ALGORITHMS.get(len(best), ""), best.lower())
