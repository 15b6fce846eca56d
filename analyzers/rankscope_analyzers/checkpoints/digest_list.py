"""A list of checksums that accompanies a checkpoint, as `sha256sum` and similar tools write it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rankscope_analyzers.checkpoints.problems import FileProblem, Problem
from rankscope_analyzers.checkpoints.stretch import opened

_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{32,128}) [ *](?P<name>.{1,4096})")
ALGORITHMS: Mapping[int, str] = {32: "md5", 40: "sha1", 64: "sha256", 96: "sha384", 128: "sha512"}
"""By the length of a digest in hexadecimal digits."""


def read(text: str) -> Mapping[str, str]:
    """Return digests by file, from lines "DIGEST  NAME".

    Raises:
        ValueError: a line has another form, or its digest has an unknown length.
    """
    digests = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        hit = _LINE.fullmatch(line)
        if hit is None or len(hit["digest"]) not in ALGORITHMS:
            raise ValueError(f"line {number} is no checksum and name, as sha256sum writes them")
        digests[hit["name"].removeprefix("./")] = hit["digest"].lower()
    return digests


def problems(root: Path, digests: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the files that are missing or differ from the list; each is read completely."""
    for name, digest in digests.items():
        try:
            actual = digest_of(root / name, ALGORITHMS[len(digest)])
        except FileProblem as error:
            yield Problem(error.kind, name, str(error))
            continue
        if actual != digest:
            yield Problem("checksum", name, f"has changed: {actual[:12]} instead of {digest[:12]}")


def digest_of(path: Path, algorithm: str) -> str:
    """Return the checksum of a whole file in hexadecimal digits.

    Args:
        path: of the file.
        algorithm: one of `ALGORITHMS`.

    Raises:
        FileProblem: it does not exist, or cannot be read.
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with opened(path) as file:
        for chunk in file.chunks():
            digest.update(chunk)
    return digest.hexdigest()
