"""Extensions of rings: what newer probes know, beside rings that every agent reads."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.files import list_rings
from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.format import StepRecord
from rankscope_agent.sources.training.reader import RingStepSource
from ring_writer import EXTENSION, HEADER_FIELDS, NS, ExtensionWriter, RingWriter, extension_header

FLAG_CPU_WAIT = 1 << 6
MS = 1_000_000
NOW = HEADER_FIELDS["created_unix_ns"] / NS


def steps(directory: Path, now: float = NOW + 100) -> list[dict[str, object]]:
    source = RingStepSource(directory, directory / "kubelet", "gpu-07", lambda: now)
    rows = source.steps(None, 0.0)
    return [dict(zip(STEP_COLUMNS, row, strict=True)) for row in rows]


def column(directory: Path, name: str, now: float = NOW + 100) -> list[object]:
    return [row[name] for row in steps(directory, now)]


def follow(directory: Path, rings: RingFollower, now: float = NOW + 100) -> list[StepRecord]:
    rings.rescan(now)
    found = [
        record for ring in rings.rings for records in ring.read(now, 1000) for record in records
    ]
    rings.close_finished()
    return found


def refused(rings: RingFollower) -> dict[str, int]:
    return {reason: count for reason, count in rings.refused().items() if count}


def test_the_rest_of_a_step_is_taken_out_of_what_older_agents_take_for_compute(tmp_path):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    extension.write(1, other_ns=20 * MS, microbatches=4)
    ring.step(step_ns=100 * MS, data_ns=10 * MS, compute_ns=60 * MS, sync_ns=30 * MS)
    (row,) = steps(tmp_path)
    assert (row["compute_seconds"], row["other_seconds"]) == (0.04, 0.02)
    assert row["microbatches"] == 4
    (record,) = follow(tmp_path, RingFollower(tmp_path, tmp_path / "kubelet"))
    assert (record.compute_ns, record.other_ns, record.microbatches) == (40 * MS, 20 * MS, 4)
    ring.end()


def test_parts_and_waits_for_cpus_add_up_to_the_step(tmp_path):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    extension.write(1, other_ns=20 * MS, cpu_wait_ns=7 * MS)
    extension.write(2, other_ns=20 * MS)
    times = {"step_ns": 107 * MS, "data_ns": 10 * MS, "compute_ns": 60 * MS, "sync_ns": 30 * MS}
    ring.step(2, **times, flags=2 | FLAG_CPU_WAIT)
    for row in steps(tmp_path):
        parts = ("data", "compute", "sync", "other", "cpu_wait")
        assert row["cpu_wait_seconds"] == 0.007
        assert sum(row[f"{part}_seconds"] for part in parts) == pytest.approx(row["step_seconds"])
    ring.end()


def test_ring_of_an_older_probe_says_what_it_always_said(tmp_path):
    ring = RingWriter(tmp_path)
    ring.step(compute_ns=60 * MS)
    (row,) = steps(tmp_path)
    assert (row["compute_seconds"], row["other_seconds"], row["microbatches"]) == (0.06, None, None)
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    assert [record.compute_ns for record in follow(tmp_path, rings)] == [60 * MS]
    assert refused(rings) == {}
    ring.end()


def test_no_backward_and_an_unknown_number_of_them_are_both_unknown(tmp_path):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    for seq, count in enumerate((0, 0xFFFF, 1), start=1):
        extension.write(seq, microbatches=count)
    ring.step(3)
    assert column(tmp_path, "microbatches") == [None, None, 1]
    ring.end()


def test_what_a_loaders_workers_need_is_unknown_unless_it_is_a_time(tmp_path):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    for seq, value in enumerate((102.5, 0.0, float("nan"), float("inf"), -3.0), start=1):
        extension.write(seq, loader_ms=value)
    ring.step(5)
    assert column(tmp_path, "loader_seconds") == [0.1025, None, None, None, None]
    ring.end()


@pytest.mark.parametrize(
    "changes",
    [
        {"check": 9},
        {"other_ns": 61 * MS},
        {"other_ns": -2},
        {"cpu_wait_ns": 101 * MS},
        {"cpu_wait_ns": -2},
    ],
)
def test_slot_that_cannot_be_true_of_its_record_costs_that_record_its_columns(tmp_path, changes):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    extension.write(1, **changes)
    extension.write(2)
    ring.step(2, compute_ns=60 * MS)
    assert column(tmp_path, "other_seconds") == [None, 0.02]
    assert column(tmp_path, "compute_seconds") == [0.06, 0.04]
    ring.end()


def test_slots_around_the_end_of_the_ring_are_found(tmp_path):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    for seq in range(1, 15):
        extension.write(seq, other_ns=seq)
    ring.step(14)
    assert len(follow(tmp_path, rings)) == 14
    for seq in range(15, 20):
        extension.write(seq, other_ns=seq)
    ring.step(5)
    assert [record.other_ns for record in follow(tmp_path, rings)] == [15, 16, 17, 18, 19]
    assert column(tmp_path, "other_seconds") == [seq / NS for seq in range(4, 20)]
    ring.end()


def test_slot_that_was_overwritten_since_its_record_was_read_is_not_taken_for_it(tmp_path):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    extension.write(17)
    assert column(tmp_path, "other_seconds") == [None]
    ring.end()


def late(directory: Path, seconds: float) -> tuple[RingFollower, RingWriter]:
    """Follow a ring whose second record, of now, has no slot yet, and look after some seconds."""
    extension, ring = ExtensionWriter(directory), RingWriter(directory)
    end = int(NOW * NS)
    for seq in (1, 2, 3):
        ring.step(start_unix_ns=end - 100 * MS, step_ns=100 * MS)
        if seq != 2:
            extension.write(seq)
    rings = RingFollower(directory, directory / "kubelet")
    assert [r.seq for r in follow(directory, rings, NOW)] == [1]
    if seconds == 0:
        extension.write(2)
    return rings, ring


@pytest.mark.parametrize(
    ("seconds", "others"), [(0, [20, 20]), (1.9, []), (2.1, [-1, 20]), (-1, [-1, 20])]
)
def test_record_waits_a_moment_for_its_slot_while_its_process_lives(tmp_path, seconds, others):
    rings, ring = late(tmp_path, seconds)
    if seconds < 0:
        ring.end()
    found = follow(tmp_path, rings, NOW + max(seconds, 0))
    assert [max(record.other_ns // MS, -1) for record in found] == others
    if seconds >= 0:
        ring.end()


def test_rows_wait_for_their_slots_too(tmp_path):
    _, ring = late(tmp_path, 2.1)
    assert column(tmp_path, "other_seconds", NOW) == [0.02]
    assert column(tmp_path, "other_seconds", NOW + 2.1) == [0.02, None, 0.02]
    ring.end()


def test_record_of_a_clock_that_runs_ahead_does_not_wait_for_ever(tmp_path):
    ExtensionWriter(tmp_path)
    ring = RingWriter(tmp_path)
    ring.step(start_unix_ns=int((NOW + 1000) * NS))
    assert len(follow(tmp_path, RingFollower(tmp_path, tmp_path / "kubelet"))) == 1
    ring.end()


WRONG = [
    ({"magic": b"SOMETHNG"}, "magic"),
    ({"version": 2}, "version"),
    ({"slot_size": 128}, "geometry"),
    ({"mark": 0x04030201}, "byte_order"),
    ({"capacity": 17}, "geometry"),
    ({"created_unix_ns": 5}, "identity"),
    ({"pid": 7}, "identity"),
]


@pytest.mark.parametrize(("changes", "reason"), WRONG)
def test_extension_of_another_ring_is_refused_by_name_and_costs_the_ring_nothing(
    tmp_path, caplog, changes, reason
):
    ExtensionWriter(tmp_path).path.write_bytes(extension_header(**changes) + bytes(64 * 16))
    ring = RingWriter(tmp_path)
    ring.step(compute_ns=60 * MS)
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    assert [record.compute_ns for record in follow(tmp_path, rings)] == [60 * MS]
    assert refused(rings) == {reason: 1}
    assert "4242-99.ext" in caplog.text
    assert column(tmp_path, "other_seconds") == [None]
    ring.end()
    follow(tmp_path, rings)
    assert refused(rings) == {}


@pytest.mark.parametrize("cut", [0, 63, 64, 64 * 17 - 1])
def test_extension_that_was_truncated_is_refused(tmp_path, cut):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    os.truncate(extension.path, cut)
    ring.step()
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    assert len(follow(tmp_path, rings)) == 1
    assert list(refused(rings)) == ["too_small" if cut < 64 else "geometry"]
    ring.end()


def test_extension_that_is_truncated_later_costs_its_columns_alone(tmp_path):
    extension, ring = ExtensionWriter(tmp_path), RingWriter(tmp_path)
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    extension.write(1)
    ring.step()
    assert [record.other_ns for record in follow(tmp_path, rings)] == [20 * MS]
    os.truncate(extension.path, 100)
    ring.step()
    assert [record.other_ns for record in follow(tmp_path, rings)] == [-1]
    ring.end()


def test_link_in_the_extensions_place_is_not_followed(tmp_path):
    real = ExtensionWriter(tmp_path, "real.ext")
    real.write(1)
    (tmp_path / "4242-99.ext").symlink_to(real.path)
    ring = RingWriter(tmp_path)
    ring.step()
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    assert [record.other_ns for record in follow(tmp_path, rings)] == [-1]
    assert refused(rings) == {"symlink": 1}
    assert column(tmp_path, "other_seconds") == [None]
    ring.end()


def test_fifo_in_the_extensions_place_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "4242-99.ext")
    ring = RingWriter(tmp_path)
    ring.step()
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    assert len(follow(tmp_path, rings)) == 1
    assert refused(rings) == {"not_regular": 1}
    ring.end()


def test_older_agents_take_an_extension_for_no_ring(tmp_path):
    ExtensionWriter(tmp_path)
    ring = RingWriter(tmp_path)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    assert [file.name for file in list_rings(descriptor).files] == ["4242-99.ring"]
    os.close(descriptor)
    assert ring.path.stat().st_size == 4096 + 64 * 16
    ring.end()


def test_descriptors_of_an_ended_ring_and_its_extension_are_both_closed(tmp_path):
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    gc.collect()  # else descriptors of tests before this one are closed meanwhile
    before = len(list(Path("/proc/self/fd").iterdir()))
    ExtensionWriter(tmp_path)
    ring = RingWriter(tmp_path)
    ring.step()
    follow(tmp_path, rings)
    ring.end()
    follow(tmp_path, rings)
    steps(tmp_path)
    assert rings.rings == ()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_slot_has_the_size_that_the_layout_says():
    assert EXTENSION.size == 64
