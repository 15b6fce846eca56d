"""Packs logs, dumps and pages into one archive that is small enough to be kept as fixtures."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

MAX_FILE_BYTES = 256 << 10
MAX_ALL_BYTES = 8 << 20
SUFFIXES = frozenset({".log", ".json", ".txt", ".prom", ".csv"})
CUT = b"\n... cut here ...\n"


def shortened(content: bytes, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return a file's beginning and end, if it is longer than the limit."""
    if len(content) <= limit:
        return content
    half = (limit - len(CUT)) // 2
    return content[:half] + CUT + content[-half:]


def pack(folder: Path, archive: Path) -> Sequence[str]:
    """Write an archive of a directory's files; return names of those that did not fit.

    Links are not followed, and rings, which are of fixed size and mostly empty, are left out.
    """
    left_out, total = [], 0
    with tarfile.open(archive, "w:gz") as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.suffix not in SUFFIXES:
                continue
            name, content = str(path.relative_to(folder)), shortened(path.read_bytes())
            if total + len(content) > MAX_ALL_BYTES:
                left_out.append(name)
                continue
            total += len(content)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return left_out
