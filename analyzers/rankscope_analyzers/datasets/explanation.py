"""`rankscope explain dataset`: shards compared with their manifest, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope_analyzers.datasets import manifest
from rankscope_analyzers.datasets.comparison import Compared, compare
from rankscope_analyzers.text.sanitize import visible

MOST_LISTED = 20
"""Shards that are shown; all of them are in the JSON."""


class DatasetExplanation:
    """The comparison of a dataset's files with its manifest.

    Args:
        compared: the shards that were asked for.
        unknown_names: CRC-32s of names that the manifest does not have, None if none was asked for.
        total: shards of the manifest.
    """

    def __init__(
        self, compared: Sequence[Compared], unknown_names: Sequence[int] | None, total: int
    ) -> None:
        self._compared, self._unknown_names, self._total = compared, unknown_names, total

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "shards": [
                {
                    "path": one.shard.path,
                    "name_crc32": f"{one.shard.name_crc32:08x}",
                    "state": one.state,
                    "detail": one.detail or None,
                }
                for one in self._compared
            ],
            "not_in_manifest": [f"{crc:08x}" for crc in self._unknown_names or ()],
            "shards_in_manifest": self._total,
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        if self._unknown_names is None:
            yield from self._of_all()
            return
        for one in self._compared:
            yield _line(one)
        for crc in self._unknown_names:
            yield f"{crc:08x}: no shard of the manifest has a name of this CRC-32"
        if self._compared and all(one.state == "matches" for one in self._compared):
            yield "What was read is what the manifest has: the cause lies elsewhere."

    def _of_all(self) -> Iterator[str]:
        counts = Counter(one.state for one in self._compared)
        states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        yield f"{self._total} shards in the manifest: {states}"
        odd = [one for one in self._compared if one.state in ("damaged", "unknown")]
        yield from map(_line, odd[:MOST_LISTED])
        if len(odd) > MOST_LISTED:
            yield f"and {len(odd) - MOST_LISTED} more (--json lists all)"
        if counts["size matches"]:
            yield "Contents were not compared (--deep does, where the manifest has checksums)."


def _line(one: Compared) -> str:
    detail = f": {one.detail}" if one.detail else ""
    return f"{visible(one.shard.path)} {one.state}{detail}"


def explain(
    file: Path, root: Path, *, names: Sequence[int] | None, deep: bool
) -> DatasetExplanation:
    """Compare a dataset with its manifest.

    Args:
        file: the manifest.
        root: the dataset's directory.
        names: CRC-32s of the names of the shards to check, all of whose bytes are read; None for
            all shards.
        deep: read all bytes of all shards too.

    Raises:
        OSError: the manifest cannot be read.
        ValueError: it is not a manifest.
    """
    with file.open("rb") as opened:
        text = opened.read(manifest.MAX_BYTES + 1)
    if len(text) > manifest.MAX_BYTES:
        raise ValueError(f"has more than {manifest.MAX_BYTES} bytes")
    shards = manifest.parse(text)
    if names is None:
        return DatasetExplanation(
            [compare(root, shard, whole=deep) for shard in shards], None, len(shards)
        )
    asked = [shard for shard in shards if shard.name_crc32 in names]
    unknown = sorted(set(names) - {shard.name_crc32 for shard in asked})
    compared = [compare(root, shard, whole=True) for shard in asked]
    return DatasetExplanation(compared, unknown, len(shards))
