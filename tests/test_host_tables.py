"""The kernel's tables about a node read right, and lines of another form left out."""

from __future__ import annotations

import math
import struct

import pytest

from rankscope_agent.sources.host import node
from rankscope_agent.sources.host.clock import parse_timex
from rankscope_agent.sources.host.nfs import NfsTotals, parse_mountstats
from rankscope_agent.sources.host.tables import (
    Mount,
    find_mount,
    parse_flat,
    parse_io,
    parse_meminfo,
    parse_memlock,
    parse_pressure,
    parse_softnet,
    parse_tasks,
)
from rdma_files import write

UID = "0a1b2c3d-1111-2222-3333-444455556666"


def test_pressure_is_in_seconds_by_kind():
    text = "some avg10=0.00 avg60=1.50 avg300=0.20 total=2500000\nfull avg10=x\n"
    assert parse_pressure(text) == {"some": 2.5}
    assert parse_pressure("") == {}


def test_pressure_of_a_node_is_read_of_every_resource(tmp_path):
    averages = "avg10=0.00 avg60=0.00 avg300=0.00"
    for number, resource in enumerate(("cpu", "memory", "io", "irq"), 1):
        lines = f"some {averages} total={number}000000\nfull {averages} total=9000000"
        write(tmp_path / "pressure" / resource, lines)
    found = {sample.labels: sample.value for sample in node.pressure(tmp_path)}
    some = {("cpu", "some"): 1, ("memory", "some"): 2, ("io", "some"): 3, ("irq", "some"): 4}
    full = dict.fromkeys((("memory", "full"), ("io", "full"), ("irq", "full")), 9)
    assert found == some | full


def test_flat_tables_keep_what_is_a_number():
    text = "oom_kill 3\nother -1\nwide 99999999999999999999999\nword x\n\n"
    assert parse_flat(text) == {"oom_kill": 3}


def test_memory_is_in_bytes():
    assert parse_meminfo("MemTotal:   100 kB\nHugePages_Total: 5\n") == {"MemTotal": 102400}


def test_received_packets_are_summed_over_cpus_in_hexadecimal():
    text = "00000010 0000000a 00000001 0\n00000010 00000002 00000010 0\nshort\n"
    assert parse_softnet(text) == (12, 17)
    assert parse_softnet("") is None


def test_a_cgroups_io_is_summed_over_devices():
    text = "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n259:0 rbytes=10 wbytes=20\n"
    assert parse_io(text) == {"rbytes": 11, "wbytes": 22, "rios": 3, "wios": 4}


@pytest.mark.parametrize(
    ("limit", "bytes_"), [("65536", 65536), ("unlimited", math.inf), ("many", None)]
)
def test_the_soft_limit_of_locked_memory_is_read(limit, bytes_):
    text = f"Max processes   1  2  processes\nMax locked memory     {limit}   unlimited   bytes\n"
    assert parse_memlock(text) == bytes_


def test_tasks_are_all_those_of_the_node():
    assert parse_tasks("0.10 0.20 0.30 2/345 6789") == 345
    assert parse_tasks("garbage") is None


def test_the_last_of_several_mounts_at_a_place_counts():
    text = (
        "24 1 0:20 / /dev/shm rw - tmpfs shm rw,size=65536k\n"
        "30 1 0:27 / /dev/shm rw master:1 - tmpfs tmpfs rw,size=1024k,mode=1777\n"
        "31 1 0:28 / /dev/shm2 rw - ext4 /dev/sda rw\n"
        "broken\n"
    )
    assert find_mount(text, "/dev/shm") == Mount("tmpfs", "0:27", 1 << 20)
    assert find_mount(text, "/dev/shm2") == Mount("ext4", "0:28", None)
    assert find_mount(text, "/nowhere") is None


def mount(place: str, operations: str, export: str = "nas:/data") -> str:
    return (
        f"device {export} mounted on {place} with fstype nfs4 statvers=1.1\n"
        f"\topts:\trw,vers=4.2\n\tper-op statistics\n{operations}\n"
    )


def test_nfs_operations_are_summed_by_pod_and_kind():
    pod = f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~nfs/data"
    operations = (
        "\t        READ: 100 103 1 5 6 7 2500 9 0\n"
        "\t       WRITE: 10 10 0 5 6 7 100 9\n"
        "\t      COMMIT: 2 2 0 5 6 7 50 9 0\n"
        "\t     GETATTR: 7 7 0 1 1 1 14 15 0\n"
        "\t      LOOKUP: 3 3 0 1 1 1 6 15 0\n"
        "\t         BAD: 3 3\n"
    )
    text = "device rootfs mounted on / with fstype rootfs\n" + mount(pod, operations)
    assert parse_mountstats(text) == {
        (UID, "read"): NfsTotals(100, 3, 1, 2.5),
        (UID, "write"): NfsTotals(12, 0, 0, pytest.approx(0.15)),
        (UID, "metadata"): NfsTotals(10, 0, 0, pytest.approx(0.02)),
    }


def test_two_mounts_of_one_export_in_a_pod_count_once_and_two_exports_twice():
    read = "\t        READ: 100 100 0 5 6 7 2500 9 0\n"
    same = mount("/mnt/a", read) + mount("/mnt/b", read)
    assert parse_mountstats(same)["", "read"].operations == 100
    both = same + mount("/mnt/c", read, "nas:/other")
    assert parse_mountstats(both)["", "read"].operations == 200


def test_a_number_that_never_ends_costs_no_time():
    assert parse_mountstats(mount("/mnt/a", "\t READ: " + "1" * 5000 + "x")) == {}


@pytest.mark.parametrize(
    ("status", "offset", "synchronized"), [(0x2000, 1e-6, True), (0x40, 1e-3, False)]
)
def test_the_clocks_offset_is_in_the_unit_that_its_status_says(status, offset, synchronized):
    data = struct.pack("@Illlli", 0, 1000, 0, 16_000_000, 0, status) + bytes(200)
    state = parse_timex(data)
    assert state.offset_seconds == pytest.approx(offset)
    assert state.max_error_seconds == 16
    assert state.synchronized is synchronized
