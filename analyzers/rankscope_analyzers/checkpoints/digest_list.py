"""A list of checksums that accompanies a checkpoint, as `sha256sum` and similar tools write it."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rankscope_analyzers.checkpoints.grouping import Group
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
        path = _path(root, name)
        try:
            actual = digest_of(root / name, ALGORITHMS[len(digest)])
        except FileProblem as error:
            yield Problem(error.kind, path, str(error))
            continue
        if actual != digest:
            yield Problem("checksum", path, f"has changed: {actual[:12]} instead of {digest[:12]}")


def _path(root: Path, name: str) -> str:
    """Return a listed file's path relative to the directory, if it is below it."""
    path = Path(os.path.normpath(root.absolute() / name))
    for base in (Path(os.path.normpath(root.absolute())), root.resolve()):
        if path.is_relative_to(base):
            return str(path.relative_to(base))
    return str(path)


def placed(
    found: Iterable[Problem], groups: Iterable[Group]
) -> Mapping[str | None, Sequence[Problem]]:
    """Return problems by the checkpoint whose files they are about, None for those of no one's.

    A file that is missing belongs to the checkpoint in whose directory it should be.
    """
    of_file, of_folder = {}, {}
    for group in groups:
        of_file.update(dict.fromkeys((file.path for file in group.files.values()), group.name))
        if group.name == group.base:
            of_folder[PurePosixPath(group.base)] = group.name
    by_group: dict[str | None, list[Problem]] = defaultdict(list)
    for one in found:
        above = PurePosixPath(one.file).parents
        folder = next((of_folder[path] for path in above if path in of_folder), None)
        by_group[of_file.get(one.file, folder)].append(one)
    return by_group


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
