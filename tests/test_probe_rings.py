"""Rings and extensions of the probe: made, held, replaced and removed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rankscope_probe
from probe_jobs.running import (
    PROBE,
    read_only_ring,
    read_ring,
)


def test_full_ring_overwrites_its_oldest_record(tmp_path: Path) -> None:
    """Write beyond the capacity without torch: the slot of a record follows from its number."""
    code = (
        "import os, rankscope_probe as p, types\n"
        "probe = object.__new__(p._Probe)\n"
        "probe.ring = p._Ring(os.environ['RANKSCOPE_RING_DIR'], 'x', None, 0)\n"
        "probe.begin_unix_ns = probe.data_ns = probe.sync_ns = probe.samples = 0\n"
        "probe.step = probe.backwards = 0\n"
        "probe.loader_used, probe.timing, probe.device_waits = False, 2, None\n"
        "probe.cpu = p._CpuWaits()\n"
        "for number in range(p._CAPACITY + 3): probe.record(number, 0)\n"
    )
    variables = {"PYTHONPATH": str(PROBE), "RANKSCOPE_RING_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **variables})
    (path,) = tmp_path.glob("*.ring")
    content = path.read_bytes()
    numbers = [int.from_bytes(content[4096 + 64 * slot :][:8], "little") for slot in range(5)]
    assert numbers == [65537, 65538, 65539, 4, 5]
    assert len(content) == 4096 + 65536 * 64


def test_ring_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    made = rankscope_probe._Ring(str(tmp_path), "2.13.0+cpu", None, 3)
    (path,) = tmp_path.glob("*.ring")
    ring = read_ring(path)
    assert ring.held
    assert not os.get_inheritable(made.slots.descriptor)
    assert (ring.pid, ring.attempt, ring.torch_version) == (os.getpid(), 3, "2.13.0+cpu")
    assert path.name.startswith(f"{os.getpid()}-")
    made.close()
    assert not read_ring(path).held


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    code = (
        "import os, resource, rankscope_probe\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "ring = rankscope_probe._Ring(os.environ['RANKSCOPE_RING_DIR'], 'x', None, 0)\n"
        "print(ring.slots.descriptor < 64)"
    )
    variables = {"PYTHONPATH": str(PROBE), "RANKSCOPE_RING_DIR": str(tmp_path)}
    shown = subprocess.check_output([sys.executable, "-c", code], env={**os.environ, **variables})
    assert shown == b"True\n"


def make_old(path: Path) -> Path:
    path.touch()
    os.utime(path, (time.time() - 100_000, time.time() - 100_000))
    return path


def test_stale_rings_are_removed_with_what_lies_beside_them_and_nothing_else(
    tmp_path: Path,
) -> None:
    names = ("7-1.ring", ".8-2.ring", "7-1.ext", "7-1.sock", "6-1.ext")
    stale = [make_old(tmp_path / name) for name in names]
    foreign = [make_old(tmp_path / name) for name in ("notes.ring", "7-1.ring.bak", "10-4.ext")]
    (young := tmp_path / "9-3.ring").touch()
    held = make_old(tmp_path / "10-4.ring")
    with held.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rankscope_probe._remove_stale(str(tmp_path))
    assert not any(path.exists() for path in stale)
    assert all(path.exists() for path in [*foreign, young, held])


def test_of_a_crash_loops_rings_the_newest_are_kept(tmp_path: Path) -> None:
    ended = [tmp_path / f"{100 + number}-1.ring" for number in range(40)]
    for age, path in enumerate(reversed(ended)):
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    with ended[0].open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rankscope_probe._remove_stale(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == [ended[0], *ended[24:]]


def test_extension_is_there_before_its_ring_and_neither_is_left_behind_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def rename(*_: str) -> None:
        seen.extend(sorted(path.suffix for path in tmp_path.iterdir()))
        raise OSError(5, "7-7")

    monkeypatch.setattr(rankscope_probe.os, "rename", rename)
    with pytest.raises(OSError, match="7-7"):
        rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    assert seen == [".ext", ".ring"]
    assert list(tmp_path.iterdir()) == []


def test_ring_goes_on_without_an_extension_that_there_is_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate, sizes = os.posix_fallocate, []

    def scarce(descriptor: int, offset: int, size: int) -> None:
        sizes.append(size)
        if len(sizes) > 1:
            raise OSError(28, "No space left on device")
        allocate(descriptor, offset, size)

    monkeypatch.setattr(rankscope_probe.os, "posix_fallocate", scarce)
    made = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    made.write(*range(8), more=(1, -1, 1))
    made.close()
    assert "No space left" in str(made.refused)
    assert len(read_only_ring(tmp_path).records) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".ring"]


def test_symlink_in_the_rings_place_is_not_followed(tmp_path: Path) -> None:
    ticks = rankscope_probe._process_start_ticks()
    (target := tmp_path / "target").write_text("precious")
    (tmp_path / f".{os.getpid()}-{ticks}.ring").symlink_to(target)
    with pytest.raises(FileExistsError):
        rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    assert target.read_text() == "precious"
