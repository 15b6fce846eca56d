"""Limits of captures: at each and just beyond it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from types import SimpleNamespace

import pytest

from large_bytes import Large
from rankscope_analyzers.captures import archive
from rankscope_analyzers.captures.archive import CaptureError
from rankscope_analyzers.captures.kept import HangCaptures


@pytest.mark.parametrize(("length", "left_out"), [(256 << 20, []), ((256 << 20) + 1, ["x"])])
def test_a_capture_holds_256_mib(tmp_path, monkeypatch, length, left_out):
    monkeypatch.setattr(archive, "_add", lambda *_: None)
    monkeypatch.setattr(archive, "hashlib", SimpleNamespace(sha256=lambda _: hashlib.sha256()))
    assert archive.write(tmp_path / "c", {"x": Large(length)}, {}) == left_out


def test_a_capture_holds_twenty_thousand_files(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_add", lambda *_: None)
    files = {f"pages/1-{number}.txt": b"" for number in range(20_001)}
    assert archive.write(tmp_path / "c", files, {}) == ["pages/1-20000.txt"]


def packed(path, *bodies):
    with gzip.open(path, "wb", 1) as file, tarfile.open(fileobj=file, mode="w") as tar:
        for name, body in bodies:
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return path


def manifest(size=0, version=1):
    found = json.dumps({"format_version": version, "files": [], "left_out": []}).encode()
    return "manifest.json", found + b" " * max(0, size - len(found))


@pytest.mark.parametrize(
    ("size", "why"), [(8 << 20, ""), ((8 << 20) + 1, "more than a capture holds")]
)
def test_a_manifest_has_8_mib(tmp_path, size, why):
    path = packed(tmp_path / "c", manifest(size))
    if not why:
        assert archive.read(path, tmp_path)["files"] == []
        return
    with pytest.raises(CaptureError, match=why):
        archive.read(path, tmp_path)


def test_captures_of_another_version_are_refused(tmp_path):
    with pytest.raises(CaptureError, match="manifest of version 1"):
        archive.read(packed(tmp_path / "c", manifest(version=2)), tmp_path)
    archive.write(tmp_path / "own", {}, {})
    assert archive.read(tmp_path / "own", tmp_path)["format_version"] == 1


def test_captures_beyond_64_or_2_gib_go_the_oldest_first(tmp_path):
    kept = HangCaptures(tmp_path, "0.1.0")
    for number in range(66):
        (tmp_path / f"{number:03d}.capture.tar.gz").touch()
    kept.take(None, (), 0.0)
    assert len(list(tmp_path.iterdir())) == 64
    os.truncate(tmp_path / "065.capture.tar.gz", 1 << 30)
    os.truncate(tmp_path / "064.capture.tar.gz", 1 << 30)
    kept.take(None, (), 0.0)
    assert len(list(tmp_path.iterdir())) == 64
    os.truncate(tmp_path / "063.capture.tar.gz", 1)
    kept.take(None, (), 0.0)
    assert sorted(path.name[:3] for path in tmp_path.iterdir()) == ["064", "065"]
