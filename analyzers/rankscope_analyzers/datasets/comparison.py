"""Compares the shards of a dataset with its manifest: sizes, and checksums on request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankscope_analyzers.checkpoints.digest_list import digest_of
from rankscope_analyzers.checkpoints.problems import UNKNOWN, FileProblem, wrong_size
from rankscope_analyzers.checkpoints.stretch import opened
from rankscope_analyzers.datasets.manifest import Shard

State = Literal["matches", "size matches", "damaged", "unknown"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A shard and the result of its comparison.

    Args:
        state: "matches" by its checksum, "size matches" if contents were not compared, "damaged" if
            it is missing or differs from the manifest, "unknown" if it cannot be read or the
            manifest does not describe it.
        detail: the rest of the sentence, "" for none.
    """

    shard: Shard
    state: State
    detail: str = ""


def compare(root: Path, shard: Shard, *, whole: bool) -> Compared:
    """Compare a file with its entry in the manifest.

    Args:
        root: the dataset's directory.
        shard: its entry.
        whole: read all of it, if it has a checksum.
    """
    path = root / shard.path
    try:
        with opened(path) as file:
            size = file.size
        if shard.size is not None and size != shard.size:
            raise wrong_size(size, shard.size)
        if not whole or not shard.digest:
            return _of_size(shard)
        actual = digest_of(path, shard.algorithm)
    except FileProblem as problem:
        state: State = "unknown" if problem.kind in UNKNOWN else "damaged"
        return Compared(shard, state, str(problem))
    if actual != shard.digest:
        detail = f"{shard.algorithm} is {actual[:12]} instead of {shard.digest[:12]}"
        return Compared(shard, "damaged", detail)
    return Compared(shard, "matches", f"{shard.algorithm} is that of the manifest")


def _of_size(shard: Shard) -> Compared:
    if shard.size is None:
        return Compared(shard, "unknown", "is there; the manifest has no size")
    return Compared(shard, "size matches", "" if shard.digest else "the manifest has no checksum")
