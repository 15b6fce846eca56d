"""Clients of Lustre and CephFS: what their kernel modules print, and what the agent makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_agent.contract.metrics import storage_clients as metrics
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.storage_clients import ceph, lustre
from rankscope_agent.sources.storage_clients.collector import StorageClientsCollector

LUSTRE = """\
snapshot_time             1700000000.123456789 secs.nsecs
start_time                1699990000.000000000 secs.nsecs
elapsed_time              10000.123456789 secs.nsecs
read_bytes                1000 samples [bytes] 4096 4194304 2097152000 8796093022208000
write_bytes               500 samples [bytes] 1 4194304 1048576000 4398046511104000
read                      1000 samples [usecs] 20 90000 4000000 99999999999
write                     500 samples [usecs] 30 120000 9000000 99999999999
fsync                     10 samples [usecs] 100 400000 1000000 99999999999
open                      40 samples [usecs] 10 900 20000 99999999
close                     40 samples [usecs] 5 300 4000 9999999
seek                      7 samples [usecs] 0 1 3 3
inode_permission          9999 samples [usecs] 0 5 1000 3000
"""
"""Of a client of Lustre 2.15."""

OLD_LUSTRE = """\
snapshot_time             1500000000.123456 secs.usecs
read_bytes                3 samples [bytes] 4096 4096 12288
open                      2 samples [regs]
close                     2 samples [regs]
"""
"""Of a client of Lustre 2.10, which times none of its operations."""

LATENCY = """\
item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)
-----------------------------------------------------------------------------------
read          100         2500            900             40000           300
write         50          20000           1000            90000           4000
metadata      20          1500            300             9000            700
copyfrom      0           0               0               0               0
"""
SIZE = """\
item          total       avg_sz(bytes)   min_sz(bytes)   max_sz(bytes)  total_sz(bytes)
----------------------------------------------------------------------------------------
read          100         4194304         4096            4194304        419430400
write         50          1048576         1               4194304        52428800
"""
OLD_CEPH = """\
item                               total
------------------------------------------
opened files  / total inodes       2 / 30

item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)
-----------------------------------------------------------------------------------
read          10          1000            900             40000           300

item          total       avg_sz(bytes)   min_sz(bytes)   max_sz(bytes)
-----------------------------------------------------------------------
read          10          4096            4096            4096

item          total           miss            hit
-------------------------------------------------
d_lease       20              3               1234
caps          30              5               98765
"""
"""Of Linux 5.10."""

FSID = "0a1b2c3d-0000-1111-2222-333344445555"


def place(root: Path, *parts: str, text: str) -> None:
    path = root.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def page(root: Path) -> dict[tuple[str, ...], float]:
    return {
        (sample.metric.name.removeprefix("rankscope_storage_client_"), *sample.labels): sample.value
        for sample in StorageClientsCollector(root).collect()
    }


def test_a_lustre_client_tells_operations_times_and_bytes(tmp_path: Path) -> None:
    place(tmp_path, "lustre", "llite", "scratch-ffff8ba123456000", "stats", text=LUSTRE)
    seconds = "operation_seconds_total"
    assert page(tmp_path) == {
        ("operations_total", "lustre", "scratch", "read"): 1000,
        ("operations_total", "lustre", "scratch", "write"): 510,
        ("operations_total", "lustre", "scratch", "metadata"): 80,
        (seconds, "lustre", "scratch", "read"): 4.0,
        (seconds, "lustre", "scratch", "write"): 10.0,
        (seconds, "lustre", "scratch", "metadata"): pytest.approx(0.024),
        ("bytes_total", "lustre", "scratch", "read"): 2097152000,
        ("bytes_total", "lustre", "scratch", "write"): 1048576000,
    }


def test_an_old_client_that_times_nothing_has_no_times() -> None:
    totals = lustre.parse_stats(OLD_LUSTRE)
    assert (totals.operations, totals.seconds, totals.moved) == (
        {"metadata": 4}, {}, {"read": 12288},
    )  # fmt: skip


def test_mounts_of_one_file_system_add_up_and_others_stay_apart(tmp_path: Path) -> None:
    for mount in ("scratch-ffff8ba100000000", "scratch-ffff8ba200000000", "home-ffff8ba300000000"):
        place(tmp_path, "lustre", "llite", mount, "stats", text=LUSTRE)
    found = page(tmp_path)
    assert found["operations_total", "lustre", "scratch", "read"] == 2000
    assert found["operations_total", "lustre", "home", "read"] == 1000


def test_a_ceph_client_tells_the_same_in_one_file_or_in_several(tmp_path: Path) -> None:
    mount = f"{FSID}.client4242"
    place(tmp_path, "ceph", mount, "metrics", "latency", text=LATENCY)
    place(tmp_path, "ceph", mount, "metrics", "size", text=SIZE)
    found = page(tmp_path)
    assert found["operations_total", "ceph", FSID, "read"] == 100
    assert found["operation_seconds_total", "ceph", FSID, "write"] == 1.0
    assert found["operation_seconds_total", "ceph", FSID, "metadata"] == pytest.approx(0.03)
    assert found["bytes_total", "ceph", FSID, "read"] == 419430400
    assert len(found) == 8


def test_an_old_ceph_client_has_no_sums_of_bytes(tmp_path: Path) -> None:
    place(tmp_path, "ceph", f"{FSID}.client1", "metrics", text=OLD_CEPH)
    assert page(tmp_path) == {
        ("operations_total", "ceph", FSID, "read"): 10,
        ("operation_seconds_total", "ceph", FSID, "read"): pytest.approx(0.01),
    }


@pytest.mark.parametrize("name", ["scratch", "a-very-long-name-ffff8ba1", "x-zzzz", "..-ffff8ba1"])
def test_what_is_no_mount_is_left_out(tmp_path: Path, name: str) -> None:
    place(tmp_path, "lustre", "llite", name, "stats", text=LUSTRE)
    place(tmp_path, "ceph", name, "metrics", text=OLD_CEPH)
    with pytest.raises(NoData, match="no client of Lustre or CephFS"):
        page(tmp_path)


def test_without_debugfs_the_flag_is_named() -> None:
    with pytest.raises(NoData, match=r"--path\.debugfs"):
        list(StorageClientsCollector(None).collect())


def test_file_systems_are_limited(tmp_path: Path) -> None:
    for number in range(40):
        mount = f"fs{number:02d}-ffff8ba{number:09d}"
        place(tmp_path, "lustre", "llite", mount, "stats", text=OLD_LUSTRE)
    names = {labels[2] for labels in page(tmp_path)}
    assert names == {f"fs{number:02d}" for number in range(16)}


@given(st.text(max_size=400))
def test_any_text_gives_numbers_that_can_be(text: str) -> None:
    for parse in (lustre.parse_stats, ceph.parse_metrics):
        totals = parse(LATENCY.splitlines()[0] + "\n" + text)
        assert all(value >= 0 for value in totals.operations.values())
        assert all(value >= 0 for value in totals.seconds.values())


def test_counters_of_no_kernel_are_left_out() -> None:
    assert lustre.parse_stats("read 99999999999999999999 samples [usecs] 1 2 3 4").operations == {}
    assert metrics.BYTES.labels == ("type", "filesystem", "direction")


def test_256_mounts_of_one_kind_are_read(tmp_path: Path) -> None:
    for number in range(257):
        place(tmp_path, "lustre", "llite", f"fs-ffff8ba{number:09d}", "stats", text=OLD_LUSTRE)
    assert page(tmp_path)["bytes_total", "lustre", "fs", "read"] == 256 * 12288


@pytest.mark.parametrize(("size", "moved"), [(1 << 16, 71), ((1 << 16) + 1, 7)])
def test_64_kibibytes_are_read_of_a_mounts_file(tmp_path: Path, size: int, moved: int) -> None:
    text = "read_bytes 3 samples [bytes] 1 2 71".rjust(size, "\n")
    place(tmp_path, "lustre", "llite", "fs-ffff8ba000000001", "stats", text=text)
    assert page(tmp_path)["bytes_total", "lustre", "fs", "read"] == moved


def test_counters_of_kernels_are_below_ten_to_the_19() -> None:
    for moved, known in ((10**19 - 1, {"read": 10**19 - 1}), (10**19, {})):
        assert lustre.parse_stats(f"read_bytes 3 samples [bytes] 1 2 {moved}").moved == known


@pytest.mark.parametrize(("count", "known"), [(10**19 - 1, {"read": 10**19 - 1}), (10**19, {})])
def test_a_count_that_no_kernel_can_have_is_left_out(count, known):
    assert lustre.parse_stats(f"read {count} samples [reqs]\n").operations == known
