"""The collector of the kernel's log: what it counts, from which source, and when that was."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kernel_log_nodes import NOW, POD_A, UPTIME, UUID, Log, node, opened, page
from kernel_text import xid
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.kernel_log.collector import KernelLogCollector
from rankscope_agent.sources.kernel_log.records import Batch, Record
from rankscope_agent.sources.kernel_log.tally import Tally, from_json

__all__ = ["node"]

MAX_SUBJECTS = 64


def test_xids_are_counted_by_gpu_code_and_severity_with_the_time_of_the_last(node):
    log = Log(xid(45), xid(45), xid(79), "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    found = page(opened(node, log))
    gpu = ("0", UUID, "0000:3b:00")
    assert found[("rankscope_gpu_xid_errors_total", *gpu, "45", "info", "none")] == 2
    assert found[("rankscope_gpu_xid_errors_total", *gpu, "79", "fatal", "reboot_node")] == 1
    last = found[("rankscope_gpu_xid_last_timestamp_seconds", *gpu, "79", "fatal", "reboot_node")]
    assert last == pytest.approx(NOW - UPTIME + 2.0, abs=600)
    assert found[("rankscope_gpu_fallen_off_bus_total", *gpu)] == 1
    assert found[("rankscope_gpu_init_failures_total", *gpu)] == 0
    assert found["rankscope_kernel_log_info", "kmsg"] == 1


def test_kinds_of_events_are_counted_from_zero(node):
    quiet = page(opened(node, Log()))
    assert quiet["rankscope_kernel_events_total", "hung_task"] == 0
    assert quiet["rankscope_kernel_records_lost_total",] == 0
    assert not [key for key in quiet if key[0] == "rankscope_gpu_xid_errors_total"]


def test_other_subjects_have_counters_of_their_own(node):
    cgroup = "/kubepods/burstable/pod01234567-89ab-cdef-0123-456789abcdef/x"
    found = page(
        opened(
            node,
            Log(
                f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg={cgroup},"
                f"task_memcg={cgroup},task=trainer,pid=71,uid=0",
                "Memory cgroup out of memory: Killed process 71 (trainer) total-vm:1kB",
                "Out of memory: Killed process 72 (trainer) total-vm:1kB",
                "mlx5_core 0000:49:00.0: wait_func:1:(pid 4): x timeout. Will cause a leak of a",
                "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (x)",
                "Buffer I/O error on dev nvme0n1p1, logical block 1",
                "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
                "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 ()",
            ),
        )
    )
    uid = "01234567-89ab-cdef-0123-456789abcdef"
    assert found["rankscope_kernel_oom_kills_total", "cgroup", uid] == 1
    assert found["rankscope_kernel_oom_kills_total", "node", ""] == 1
    assert found["rankscope_nic_command_timeouts_total", "0000:49:00.0"] == 1
    assert found["rankscope_pcie_aer_events_total", "0000:01:00", "info"] == 1
    assert found["rankscope_kernel_disk_errors_total", "nvme0"] == 1
    assert found["rankscope_nvswitch_sxid_errors_total", "0000:07:00", "20034", "fatal"] == 1
    assert found["rankscope_kernel_events_total", "memory_corrected"] == 4


def test_lost_records_are_counted(node):
    log = Log(xid(79))
    log.lost = 36
    assert page(opened(node, log))["rankscope_kernel_records_lost_total",] == 36


def test_a_node_without_a_log_says_so_and_why(node):
    def refused():
        raise OSError(1, "Operation not permitted")

    with pytest.raises(NoData, match="Operation not permitted"):
        list(KernelLogCollector([refused, refused], node).collect())


def test_the_next_way_is_taken_where_the_best_is_closed(node):
    def refused():
        raise OSError(1, "Operation not permitted")

    log = Log(xid(79), name="journal")
    found = page(KernelLogCollector([refused, lambda: log], node))
    assert found["rankscope_kernel_log_info", "journal"] == 1


def test_a_source_that_breaks_is_closed_and_opened_again(node):
    broken, whole = Log(), Log(xid(79))
    broken.fails = True
    sources = [broken, whole]
    collector = KernelLogCollector([lambda: sources.pop(0)], node)
    with pytest.raises(OSError, match="Input/output"):
        list(collector.collect())
    assert broken.closed
    assert page(collector)["rankscope_kernel_log_info", "kmsg"] == 1


def test_text_of_the_log_never_becomes_a_label(node):
    evil = '"},{x="<b>'
    log = Log(
        f"NVRM: Xid (PCI:{evil}): 79, x",
        "NVRM: Xid (PCI:0000:3b:00): 9999, x",
        f"Buffer I/O error on dev {evil}, logical block 1",
        f"Memory cgroup out of memory: Killed process 71 ({evil}) total-vm:1kB",
    )
    labels = {label for key in page(opened(node, log)) for label in key[1:]}
    assert not [label for label in labels if set(label) & set('"{}<>= ')]
    assert "other" in labels


def test_devices_beyond_the_limit_share_a_name():
    tally = Tally()
    for number in range(2 * MAX_SUBJECTS):
        event = read(xid(79, pci=f"{number:04x}:3b:00").encode())
        tally.add(event, NOW)
    assert len(tally.xids) == MAX_SUBJECTS + 1
    assert tally.xids["other", "79", "fatal", "reboot_node"] == MAX_SUBJECTS
    assert from_json(json.loads(json.dumps(tally.to_json()))).xids == tally.xids


CRASH = "python[77]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so[7f+1]"
DRIFTS = [-100.0, 0.0, 100.0]


@pytest.mark.parametrize("ahead", DRIFTS)
def test_a_record_that_is_read_as_it_is_written_has_the_time_of_the_reading(node, ahead):
    """The clock of records runs apart from the node's, minutes within a month or two."""
    now = {"uptime": UPTIME}
    sought: list[int | None] = []
    moving = dataclasses.replace(
        node,
        clock=lambda: NOW + now["uptime"],
        uptime=lambda: now["uptime"],
        pod_of=lambda pid: sought.append(pid) or POD_A,
    )
    records = [Record(0, 0.0, b"quiet")]
    log = Log()
    log.read = lambda cursor: Batch(records, {}, 0, complete=True)
    collector = opened(moving, log)
    page(collector)
    for later, text in ((60.0, "quiet"), (90.0, xid(79)), (91.0, CRASH)):
        now["uptime"] = UPTIME + later
        records[:] = [Record(1, UPTIME + later + ahead - 0.5, text.encode())]
        found = page(collector)
    (last,) = (value for key, value in found.items() if "xid_last" in key[0])
    assert last == pytest.approx(NOW + UPTIME + 90.0 - 0.5, abs=31.0)
    assert sought == [77], "its process was still there"


def test_a_backlog_is_as_old_as_it_says_and_never_from_the_future(node):
    log = Log()
    records = [Record(0, 100.0, xid(45).encode()), Record(1, UPTIME + 50.0, xid(79).encode())]
    log.read = lambda cursor: Batch(records, {}, 0, complete=True)
    found = page(opened(dataclasses.replace(node, clock=lambda: NOW), log))
    stamps = {key[4]: value for key, value in found.items() if "xid_last" in key[0]}
    assert stamps == {"45": NOW - UPTIME + 100.0, "79": NOW}


def test_a_reading_that_left_records_says_nothing_about_the_age_of_the_next(node):
    now = {"uptime": UPTIME}
    moving = dataclasses.replace(
        node, clock=lambda: NOW + now["uptime"], uptime=lambda: now["uptime"]
    )
    log, records = Log(), [Record(0, 0.0, b"quiet")]
    log.read = lambda cursor: Batch(records, {}, 0, complete=False)
    collector = opened(moving, log)
    page(collector)
    now["uptime"] += 5.0
    records[:] = [Record(1, 1_000.0, xid(79).encode())]
    (last,) = (value for key, value in page(collector).items() if "xid_last" in key[0])
    assert last == NOW + 1_000.0
