"""A gzip tar of files with a manifest: of bounded size, and read without trusting its writer.

Captures are mailed and attached to tickets, so the reader did not write them: only known names are
accepted, only regular files of bounded size, and none whose checksum differs from the manifest's.
Nothing is ever written outside of the given directory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.text import finite_json

MANIFEST = "manifest.json"
FORMAT_VERSION = 1

MAX_BYTES = 256 << 20
"""Bytes of all files of a capture before compression: an hour of steps of 512 ranks is some 100
MB."""

MAX_FILES = 20_000
MAX_MANIFEST_BYTES = 8 << 20

_NAME = re.compile(
    r"diagnosis/evidence\.json|diagnosis/job-\d{1,4}/(?:start/)?(?:meta\.json|records\.parquet)"
    r"|pages/[12]-[A-Za-z0-9._-]{1,128}\.txt|summary\.html|summary\.txt"
    r"|evidence/\d-[a-z]{1,16}-[A-Za-z0-9._-]{1,128}\.json|kept/[A-Za-z0-9._-]{1,128}\.json"
    r"|objects/(?:pods|owners)\.json"
)
"""Names of files in a capture, in addition to the manifest."""


class CaptureError(Exception):
    """A file is not a capture, or a capture cannot be written; the message says what was seen."""


def write(path: Path, files: Mapping[str, bytes], about: Mapping[str, Any]) -> Sequence[str]:
    """Write a capture; return the names of files left out because they would exceed its size.

    Args:
        path: of the capture, which must not exist and only its owner may read.
        files: content by name, the most important first.
        about: members of the manifest.

    Raises:
        OSError: it cannot be written, or exists.
    """
    kept: dict[str, bytes] = {}
    room = MAX_BYTES
    for name, body in files.items():
        if len(body) <= room and len(kept) < MAX_FILES:
            kept[name] = body
            room -= len(body)
    left_out = [name for name in files if name not in kept]
    manifest = {
        "format_version": FORMAT_VERSION,
        **about,
        "files": [
            {"name": name, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
            for name, body in kept.items()
        ],
        "left_out": left_out,
    }
    first = finite_json.text(manifest, indent=2).encode() + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        _pack(descriptor, {MANIFEST: first, **kept})
    except OSError:
        path.unlink(missing_ok=True)  # a part of a capture cannot be read, and bars the next one
        raise
    return left_out


def _pack(descriptor: int, files: Mapping[str, bytes]) -> None:
    with (
        os.fdopen(descriptor, "wb") as sink,
        gzip.GzipFile("", "wb", 6, sink, 0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, body in files.items():
            _add(tar, name, body)


def _add(tar: tarfile.TarFile, name: str, body: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(body), 0o600
    tar.addfile(entry, io.BytesIO(body))


def read(path: Path, directory: Path) -> Mapping[str, Any]:
    """Write the files of a capture into a directory; return its manifest.

    Raises:
        CaptureError: it is not a capture, or its files differ from its manifest.
    """
    try:
        with path.open("rb") as source, tarfile.open(fileobj=source, mode="r|gz") as tar:
            return _read(tar, directory)
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError, LookupError) as error:
        raise CaptureError(f"{path} cannot be read as a capture: {error}") from error
    except TypeError as error:
        raise CaptureError(f"{path} has a manifest that no capture has: {error}") from error


def _read(tar: tarfile.TarFile, directory: Path) -> Mapping[str, Any]:
    manifest: Mapping[str, Any] = {}
    sums: dict[str, str] = {}
    room = MAX_BYTES
    for count, entry in enumerate(tar):
        if not entry.isreg() or count > MAX_FILES:
            raise ValueError(f"{entry.name!a} is not a regular file of at most {MAX_FILES}")
        if count == 0:
            manifest = _manifest(entry, _body(tar, entry, MAX_MANIFEST_BYTES))
            sums = {str(one["name"]): str(one["sha256"]) for one in manifest["files"]}
            continue
        body = _body(tar, entry, room)
        room -= len(body)
        if not _NAME.fullmatch(entry.name) or entry.name not in sums:
            raise ValueError(f"{entry.name!a} is not a file of a capture")
        if hashlib.sha256(body).hexdigest() != sums.pop(entry.name):
            raise ValueError(f"{entry.name} is not as its manifest says")
        target = directory / entry.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)
    if sums or not manifest:
        raise ValueError(f"{', '.join(sorted(sums)[:3]) or MANIFEST} is missing: it is cut off")
    return manifest


def _manifest(entry: tarfile.TarInfo, body: bytes) -> Mapping[str, Any]:
    found = untrusted_json.read(body) if entry.name == MANIFEST else None
    if not isinstance(found, dict) or found.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"it does not begin with a manifest of version {FORMAT_VERSION}")
    return found


def _body(tar: tarfile.TarFile, entry: tarfile.TarInfo, most: int) -> bytes:
    source = tar.extractfile(entry)
    if entry.size > most or source is None:
        raise ValueError(f"{entry.name!a} has {entry.size} bytes, more than a capture holds")
    body = source.read(most + 1)
    if len(body) != entry.size:
        raise ValueError(f"{entry.name!a} is cut off")
    return body
