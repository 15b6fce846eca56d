"""One file of a checkpoint after examination: what it holds, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.checkpoints import safetensors_file, torch_file, zip_directory
from rankscope_analyzers.checkpoints.problems import FileProblem, Problem
from rankscope_analyzers.checkpoints.stretch import Stretch, opened

MAX_JSON_BYTES = 64 << 20
PICKLE_PROTOCOLS = tuple(bytes([protocol]) for protocol in range(2, 6))
SURE_ENDINGS = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp")
"""Files with these suffixes hold tensors in a known format or are damaged; .bin and .tar may be
anything."""


@dataclass(frozen=True, slots=True)
class ExaminedFile:
    """What a file holds.

    Args:
        format: "torch", "pickle", "safetensors", "json" or "unknown".
        value: its structure as symbols, a header, or JSON; None if it was not read.
        problem: what is wrong with it.
        has_checksums: True if its bytes can be compared with checksums in it.
        structure_read: True if sizes in it were compared with its structure.
    """

    format: str
    value: Any = None
    problem: Problem | None = None
    has_checksums: bool = False
    structure_read: bool = True


def examine(root: Path, path: str, *, deep: bool, structure: Callable[[int], bool]) -> ExaminedFile:
    """Examine a file with tensors.

    Args:
        root: the directory that is examined.
        path: the file, relative to it.
        deep: read all of it if it has checksums.
        structure: called with its size, returns whether an archive's structure is read too.
    """
    try:
        with opened(root / path) as file:
            return _examined(file, path, deep=deep, structure=structure)
    except FileProblem as error:
        return ExaminedFile("unknown", problem=Problem(error.kind, path, str(error)))


def _examined(
    file: Stretch, path: str, *, deep: bool, structure: Callable[[int], bool]
) -> ExaminedFile:
    head = file.read(0, 512)
    if not any(head):
        detail = f"begins with zeros, in {file.size} bytes" if head else "is empty"
        raise FileProblem("truncated", detail)
    if head[:4] == zip_directory.MAGIC:
        read = torch_file.read_zip(file, deep=deep, structure=structure)
        return _of_torch("torch", read)
    if path.endswith(".safetensors") or safetensors_file.looks_like(head):
        return ExaminedFile("safetensors", safetensors_file.read(file))
    if head[:1] == b"\x80" and head[1:2] in PICKLE_PROTOCOLS:
        return _of_torch("pickle", torch_file.read_pickles(file))
    if path.endswith(SURE_ENDINGS) and head[257:262] != b"ustar":
        raise FileProblem("unparseable", "does not begin like a file of tensors")
    return ExaminedFile("unknown")


def _of_torch(format: str, read: torch_file.TorchContent) -> ExaminedFile:  # noqa: A002 - its name
    return ExaminedFile(
        format,
        read.value,
        has_checksums=read.has_checksums,
        structure_read=read.structure_read,
    )


def examine_json(root: Path, path: str) -> ExaminedFile:
    """Examine a file of JSON, such as an index or a trainer's state."""
    try:
        with opened(root / path) as file:
            if file.size > MAX_JSON_BYTES:
                raise FileProblem("too_large", f"has {file.size} bytes")
            return ExaminedFile("json", _json(file.read(0, file.size)))
    except FileProblem as error:
        return ExaminedFile("json", problem=Problem(error.kind, path, str(error)))


def _json(body: bytes) -> Any:
    if not body.strip(b"\0 \n"):
        raise FileProblem("truncated", "is empty")
    try:
        return untrusted_json.read(body)
    except ValueError:
        raise FileProblem("truncated", "is not complete JSON") from None


def mapping(value: Any) -> Mapping[Any, Any]:
    """Return a dictionary, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}
