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
from probe_jobs.nurseries import Nursery
from probe_jobs.running import (
    EXTENSION,
    PROBE,
    read_only_ring,
    read_ring,
    run_script,
)


def test_full_ring_overwrites_its_oldest_record(tmp_path: Path) -> None:
    """Write beyond the capacity without torch: the slot of a record follows from its number."""
    code = (
        "import os, rankscope_probe as p, types\n"
        "probe = object.__new__(p._Probe)\n"
        "probe.ring = p._Ring(os.environ['RANKSCOPE_RING_DIR'], 'x', None, 0)\n"
        "probe.clock = p._StepClock(types.SimpleNamespace(autograd=None))\n"
        "workers = types.SimpleNamespace(code=0)\n"
        "probe.loader = types.SimpleNamespace(used=False, workers=workers)\n"
        "probe.counted = False\n"
        "probe.backwards = types.SimpleNamespace(device_waits=None)\n"
        "probe.step, probe.timing = 0, 2\n"
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


def test_a_module_of_the_programs_with_a_name_of_pythons_is_not_run(tmp_path: Path) -> None:
    """Look for what the program has of its own beside its script, as Python does first."""
    (tmp_path / "resource.py").write_text("print('the program has begun to use its GPUs')\n")
    (tmp_path / "job.py").write_text(
        "import os, rankscope_probe\n"
        "rankscope_probe._Ring(os.environ['RANKSCOPE_RING_DIR'], 'x', None, 0)\n"
    )
    ended = run_script([str(tmp_path / "job.py")], tmp_path / "rings")
    assert (ended.code, ended.output, ended.errors) == (0, "", "")
    assert len(list((tmp_path / "rings").glob("*.ring"))) == 1


def make_old(path: Path) -> Path:
    path.touch()
    os.utime(path, (time.time() - 100_000, time.time() - 100_000))
    return path


def test_stale_rings_are_removed_with_what_lies_beside_them_and_nothing_else(
    tmp_path: Path,
) -> None:
    names = ("7-1.ring", ".8-2.ring", "7-1.ext", "7-1.span", "7-1.sock", "6-1.ext", "6-1.span")
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


def test_ring_that_another_rank_is_creating_is_left_to_it(tmp_path: Path) -> None:
    """The 64 ranks of a node create theirs at once, as `init_process_group` returns."""
    paths = [tmp_path / f".{100 + number}-1.ring" for number in range(64)]
    for path in paths:
        path.touch()
    rankscope_probe._remove_stale(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_what_lies_beside_a_ring_is_there_before_it_and_not_left_behind_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def rename(*_: str) -> None:
        seen.extend(sorted(path.suffix for path in tmp_path.iterdir()))
        raise OSError(5, "7-7")

    monkeypatch.setattr(rankscope_probe.os, "rename", rename)
    with pytest.raises(OSError, match="7-7"):
        rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    assert seen == [".ext", ".ring", ".sig", ".span"]
    assert list(tmp_path.iterdir()) == []


def slots(directory: Path) -> list[tuple[int, ...]]:
    """Return what the extension's slots hold that are not empty."""
    (path,) = directory.glob("*.ext")
    return [slot for slot in EXTENSION.iter_unpack(path.read_bytes()[64:]) if any(slot)]


def test_slots_of_the_extension_are_written_together_at_most_a_second_late(tmp_path: Path) -> None:
    made = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    seen = []
    for step_ns in (400_000_000, 400_000_000, 400_000_000, 100_000_000, 1_100_000_000):
        made.write(1, step_ns, 0, step_ns, 0, 7, 8, 2, 5, -1, 3)
        seen.append(len(slots(tmp_path)))
    assert seen == [0, 0, 3, 3, 5]
    made.write(1, 1_000, 0, 1_000, 0, 7, 8, 2, 6, 4, 3)
    made.flush()
    assert slots(tmp_path)[-2:] == [
        (5, 5, -1, 0, 0, -1, -1, 3, 0, 5),
        (6, 6, 4, 0, 0, -1, -1, 3, 0, 6),
    ]
    assert len(read_only_ring(tmp_path).records) == 6
    made.close()


def test_slots_of_more_steps_than_a_ring_holds_stay_within_the_extension(tmp_path: Path) -> None:
    made = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    (path,) = tmp_path.glob("*.ext")
    size = path.stat().st_size
    last = rankscope_probe._CAPACITY
    made.written = last - 2
    for _ in range(last + 10):
        made.write(1, 10_000, 0, 10_000, 0, 7, 8, 2, 5, -1, 3)
    made.flush()
    made.close()
    assert path.stat().st_size == size
    assert [slot[0] for slot in slots(tmp_path)][6:10] == [131079, 131080, 65545, 65546]


def test_slots_that_wait_around_the_end_of_the_ring_go_to_both_its_ends(tmp_path: Path) -> None:
    made = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    last = rankscope_probe._CAPACITY
    made.written = last - 2
    for other_ns in (10, 11, 12, 13, 14):
        made.write(1, 1_000, 0, 1_000, 0, 7, 8, 2, other_ns, -1, 1)
    made.flush()
    made.close()
    numbers = [(slot[0], slot[1]) for slot in slots(tmp_path)]
    assert numbers == [(last + 1, 12), (last + 2, 13), (last + 3, 14), (last - 1, 10), (last, 11)]


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
    made.write(*range(8), 1, -1, 1)
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


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, [".loaded"]),
        ({"RANK": "1", "WORLD_SIZE": "2", "RANKSCOPE_PROBE": "0"}, []),
        ({"RANK": "0", "WORLD_SIZE": "1"}, []),
        ({}, []),
    ],
)
def test_a_rank_that_loads_the_probe_leaves_word_before_it_joins_others(
    bare_nursery: Nursery, variables: dict[str, str], word: list[str], tmp_path: Path
) -> None:
    (ended,) = bare_nursery.run(tmp_path, "extended.py", **variables)
    assert (ended.code, ended.errors) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == word


def test_where_no_word_can_be_left_a_rank_trains_on(bare_nursery: Nursery, tmp_path: Path) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2"}
    (ended,) = bare_nursery.run(tmp_path / "absent", "extended.py", **place)
    assert (ended.code, ended.errors) == (0, "")
    assert list(tmp_path.iterdir()) == []
