"""Each kind of line gives its event, and what only looks alike gives none."""

from __future__ import annotations

import pytest

from kernel_text import log_of, recovery, xid
from rankscope_agent.contract.kernel.log import KernelLog, counted, read

XID_FORMS = (
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid=12, name=python, GPU has fallen", (79, "0000:3b:00", 12)),
    ("NVRM: Xid (PCI:0000:3B:00): 43, pid=12, Ch 00000010", (43, "0000:3b:00", 12)),
    ("NVRM: Xid (PCI:0000:41:00): 13, Graphics SM Warp Exception", (13, "0000:41:00", None)),
    ("NVRM: Xid (PCI:0000:63:00): 31, name=shell, MMU Fault", (31, "0000:63:00", None)),
    (
        "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, x",
        (13, "0000:cb:00", None),
    ),
    ("NVRM: Xid (PCI:0000:cb:00): 79, pid=0, GPU has fallen", (79, "0000:cb:00", 0)),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7, Contained: x", (94, "0000:01:00", 7)),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 94, pid=7, x", (94, "0000:01:00", 7)),
    ("NVRM: Xid (0000:03:00): 14, 0004", (14, "0000:03:00", None)),
    ("NVRM: Xid (PCI:...): 145, x", (145, None, None)),
    ("NVRM: Xid (PCI:0000:xx:00): 79, pid=<redacted>, name=x, y", (79, None, None)),
    ("NVRM: Xid (PCI:0000:3b:00): 45, pid=12, name=a b:c [d], Ch 1", (45, "0000:3b:00", 12)),
    ("NVRM: Xid (PCI:0019:01:00): 79, pid=12", (79, "0019:01:00", 12)),
)


@pytest.mark.parametrize(("line", "fields"), XID_FORMS)
def test_every_form_of_an_xid_line_is_read(line, fields):
    event = read(line.encode())
    assert event is not None
    assert (event.code, event.pci, event.pid) == fields


@pytest.mark.parametrize("cut", range(4, 40))
def test_an_xid_line_that_is_cut_before_its_code_is_none(cut):
    line = "NVRM: Xid (PCI:0000:3b:00): 145, NETIR Fatal"
    event = read(line[:cut].encode())
    assert (event is not None) == (cut > line.index(","))
    assert event is None or event.code == 145


LINES = (
    ("NVRM: GPU 0000:79:00.0: GPU has fallen off the bus.", "gpu_fallen_off_bus", "pcie"),
    ("NVRM: GPU 0000:79:00.0: RmInitAdapter failed! (0x25:0x65:1)", "gpu_init_failure", None),
    ("NVRM: GPU3 _kgspIsHeartbeatTimedOut: no heartbeat", "gpu_firmware_silent", "driver"),
    ("NVRM: nvAssertOk: failed [NV_ERR_RESET_REQUIRED] (0x1)", "gpu_reset_required", "driver"),
    ("NVRM: gpuWaitForGfwBootComplete_GH100: failed to wait", "gpu_boot_failure", None),
    (
        "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting links failed!",
        "nvlink_training_failure",
        "nvlink_fabric",
    ),
    (
        "pcieport 0000:00:03.1: DPC: containment event, status:0x1f01 source:0x0000",
        "pcie_error",
        "pcie",
    ),
    ("pcieport 0000:40:01.1: pciehp: Slot(6): Card not present", "pcie_link_down", "pcie"),
    ("bnxt_en 0000:01:00.0 eth0: TX timeout detected, x", "nic_transmit_timeout", "network_nic"),
    ("ena 0000:00:05.0 eth0: Keep alive watchdog timeout.", "nic_transmit_timeout", "network_nic"),
    (
        "ena 0000:00:05.0 eth1: Found a Tx that wasn't completed on time, qid 2, index 97.",
        "nic_transmit_timeout",
        "network_nic",
    ),
    ("ixgbe 0000:01:00.0 eth0: Detected Tx Unit Hang", "nic_transmit_timeout", "network_nic"),
    ("e1000e 0000:00:19.0 eno1: Detected Hardware Unit Hang:", "nic_transmit_timeout", None),
    ("e1000e 0000:00:19.0 eno1: Reset adapter unexpectedly", "nic_transmit_timeout", None),
    ("mlx5_core 0000:03:00.0: handle_hca_cap failed", "nic_probe_failure", "network_nic"),
    ("mlx5_core 0000:03:00.0: enable hca failed", "nic_probe_failure", "network_nic"),
    ("loader #7 invoked oom-killer: gfp_mask=0x140dca(X), order=0", "oom_search", "host_memory"),
    ("nvme nvme4: queue 0: timeout request 0x0 type 4", "nvme_timeout", "storage"),
    ("nvme nvme4: starting error recovery", "nvme_timeout", "storage"),
    ("nvme nvme4: failed nvme_keep_alive_end_io error=10", "nvme_timeout", "storage"),
    ("nvme nvme4: Reconnecting in 10 seconds...", "nvme_timeout", "storage"),
    ("block nvme2n2: no usable path - requeuing I/O", "nvme_timeout", "storage"),
    ("ib0: transmit timeout: latency 1012 msecs", "nic_transmit_timeout", "network_nic"),
    ("general protection fault, maybe: 0000 [#1] SMP", "kernel_fault", "host_kernel"),
    ("Memory failure: 0x12a: Killing python:12 due to x", "memory_uncorrected", "host_memory"),
    ("{1}[Hardware Error]: Hardware error from APEI Generic x", "machine_check", "host_memory"),
    ("{1}[Hardware Error]: event severity: fatal", "machine_check", "host_memory"),
    ("sd 0:0:0:0: [sda] tag#0 Sense Key : Medium Error [current]", "disk_error", "storage"),
    ("ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6", "disk_error", "storage"),
    ("md/raid1:md0: Disk failure on sdb1, disabling device.", "disk_error", "storage"),
    ("NVRM: API mismatch: the client has the version 1, but", "driver_mismatch", "driver"),
    (
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
        "pcie_error",
        "pcie",
    ),
    (
        "nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "pcie_error",
        "pcie",
    ),
    ("nvidia 0000:01:00.0: AER: can't recover (no callback)", "pcie_unrecovered", "pcie"),
    ("pcieport 0000:3a:00.0: pciehp: Slot(6): Link Down", "pcie_link_down", "pcie"),
    (
        "mlx5_core 0000:49:00.0: wait_func:1132:(pid 4): X(0x7) timeout. Will cause a leak of a c",
        "nic_command_timeout",
        "network_nic",
    ),
    (
        "mlx5_core 0000:49:00.0: mlx5_pcie_event:301:(pid 4): Detected insufficient power on the"
        " PCIe slot (27W).",
        "nic_low_power",
        "network_nic",
    ),
    (
        "mlx5_core 0000:49:00.0: Port module event: module 0, Cable unplugged",
        "nic_cable_unplugged",
        "network_link",
    ),
    (
        "mlx5_core 0000:49:00.0: Port module event[error]: module 2, High Temperature",
        "nic_module_error",
        "network_link",
    ),
    ("NETDEV WATCHDOG: eth0 (igb): transmit queue 3 timed out", "nic_transmit_timeout", None),
    (
        "igb 0000:22:04.0 eth4: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5010 ms",
        "nic_transmit_timeout",
        "network_nic",
    ),
    ("mlx5_core 0000:01:00.1 eth1: Link down", "link_down", "network_link"),
    ("mlx5_core 0000:01:00.1 mlx5_1: Port: 1 Link DOWN", "link_down", "network_link"),
    ("igb 0000:00:14.0 eth0: igb: eth0 NIC Link is Down", "link_down", "network_link"),
    ("tg3 0000:02:00.0 eth0: Link is down", "link_down", "network_link"),
    (
        "bond0: link status definitely down for interface eno50, disabling it",
        "link_down",
        "network_link",
    ),
    ("bond0: (slave eno1): link status definitely down, disabling slave", "link_down", None),
    ("bond1: now running without any active interface!", "link_down", "network_link"),
    (
        "Memory cgroup out of memory: Killed process 4 (py (x)) total-vm:1kB, anon-rss:1kB",
        "oom_kill",
        "app",
    ),
    (
        "Memory cgroup out of memory: Kill process 4 (python) score 68 or sacrifice child",
        "oom_kill",
        "app",
    ),
    ("Out of memory: Killed process 4 (python) total-vm:1kB", "oom_kill", "host_memory"),
    ("INFO: task kworker/u8:1:24 blocked for more than 120 seconds.", "hung_task", None),
    (
        "watchdog: BUG: soft lockup - CPU#9 stuck for 27s! [kworker/9:0:24827]",
        "soft_lockup",
        "host_kernel",
    ),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "hard_lockup", "host_kernel"),
    ("rcu: INFO: rcu_preempt self-detected stall on CPU", "cpu_stall", "host_kernel"),
    ("rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks", "cpu_stall", None),
    ("rcu_sched self-detected stall on CPU { 1} (t=60000 jiffies)", "cpu_stall", None),
    ("rcu: INFO: rcu_tasks detected stalls on tasks:", "cpu_stall", "host_kernel"),
    ("Kernel panic - not syncing: Fatal exception", "kernel_panic", "host_kernel"),
    ("BUG: unable to handle page fault for address: 00000000", "kernel_fault", "host_kernel"),
    ("trainer[77]: segfault at 0 ip 00007f sp 00007ffc error 4 in libc.so", "user_fault", "app"),
    (
        "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0)",
        "memory_corrected",
        "host_memory",
    ),
    (
        "EDAC MC1: 1 UE memory read error on CPU_SrcID#0_Chan#1_DIMM#0",
        "memory_uncorrected",
        "host_memory",
    ),
    ("mce: [Hardware Error]: Machine check events logged", "machine_check", "host_memory"),
    ("critical medium error, dev sdb, sector 1 op 0x0:(READ)", "disk_error", "storage"),
    ("task:python3    state:D stack:    0 pid:15 ppid: 1 flags:0x1", "hung_task", "host_kernel"),
    (
        "traps: python[77] trap invalid opcode ip:7f2a sp:7ffc error:0 in libcuda.so",
        "user_fault",
        "app",
    ),
    ("BTRFS critical (device sda1): corrupt leaf", "filesystem_error", "storage"),
    ("XFS (nvme0n1): Filesystem has been shut down due to", "filesystem_error", "storage"),
    ("I/O error, dev sda, sector 1 op 0x0:(READ) flags 0x0", "disk_error", "storage"),
    ("Buffer I/O error on dev sda1, logical block 1", "disk_error", "storage"),
    ("Buffer I/O error on device sda1, logical block 1", "disk_error", "storage"),
    ("EXT4-fs error (device sdf): f:217: comm x: bad", "filesystem_error", "storage"),
    ("EXT4-fs (sdf): I/O error while writing superblock", "filesystem_error", "storage"),
    ("XFS (dm-0): Corruption of in-memory data detected.", "filesystem_error", "storage"),
    ("nvme nvme0: I/O 12 QID 3 timeout, reset controller", "nvme_timeout", "storage"),
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff", "nvme_lost", "storage"),
    ("nfs: server 10.0.0.1 not responding, still trying", "network_storage_silent", "storage"),
)


@pytest.mark.parametrize(("line", "kind", "cause"), LINES)
def test_every_kind_of_line_is_read(line, kind, cause):
    for prefix in ("", "[ 7213.801553] ", "Mar 28 01:36:31 gpu-07 kernel: "):
        event = read((prefix + line).encode())
        assert event is not None
        assert event.kind == kind
        assert cause in {event.cause, None}


LOOK_ALIKES = (
    "r8169 0000:02:00.0 eth0: RTL8168h/8111h, XID 641, IRQ 51",
    "RPC: 316 sleep_on(queue xprt_pending time 5880978432)",
    "nfs: task has xid=4160802247",
    "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability]",
    "EXT4-fs (sda1): re-mounted 00000000 r/w. Quota mode: none.",
    "bond0: Enslaving eth1 as an active interface with a down link",
    "bond0: link status up for interface eth1, enabling it in 0 ms",
    "IPv6: ADDRCONF(NETDEV_UP): veth1: link is not ready",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth1: link becomes ready",
    "amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-1111-2222-3333-444444444444",
    "NVRM: GPU Board Serial Number: ",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release Build",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping",
    "XFS (sda1): Mounting V5 Filesystem",
    "nvme nvme0: 8/0/0 default/read/poll queues",
    "mlx5_core 0000:49:00.0: mlx5_pcie_event:298:(pid 4): PCIe slot advertised sufficient power",
    "Memory: 16316412K/16777216K available, out of memory nothing",
    "systemd[1]: Started error reporting. Link is fine",
    "oom_reaper: reaped process 63 (python), now anon-rss:0kB",
    "NVRM: Xid (PCI:0000:3b:00): 79",
)


@pytest.mark.parametrize("line", LOOK_ALIKES)
def test_what_only_looks_like_an_event_is_none(line):
    assert read(line.encode()) is None


def test_events_are_counted_by_code_gpu_and_process():
    log = log_of(xid(45, "Ch 1"), xid(45, "Ch 2"), xid(45, "Ch 3", pid=72), xid(13, "x"))
    assert [(s.event.code, s.event.pid, s.count) for s in log.seen] == [
        (45, 71, 2),
        (45, 72, 1),
        (13, 71, 1),
    ]


@pytest.mark.parametrize("copies", [1, 400])
def test_grouping_of_floods_counts_what_line_by_line_reading_counts(copies):
    benign = [f"[{n}.5] usb 1-{n}: new device" for n in range(20 * copies)]
    flood = [f"[{n}.5] {xid(45, f'Ch {n:08x}', pid=n % 3)}" for n in range(copies)]
    sparse, dense = log_of(*benign, *flood), log_of(*flood)
    assert {s.event.pid: s.count for s in sparse.seen} == {s.event.pid: s.count for s in dense.seen}
    assert sum(s.count for s in dense.seen) == copies


def test_a_program_that_repeats_a_kernel_line_adds_nothing_to_its_count():
    lines = [f"[{n}.5] {xid(79)}" for n in range(30)]
    forged = [f"Feb 14 05:28:06 gpu-07 evil[{n}]: kernel: {xid(79)}" for n in range(30)]
    assert [s.count for s in log_of(*lines, *forged).seen] == [30]
    assert [s.count for s in log_of(*forged, *lines).seen] == [30]


def test_the_number_of_memory_errors_is_the_one_in_the_line():
    (one,) = log_of("EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 ()").seen
    assert one.count == 4
    (huge,) = log_of(f"EDAC MC0: {'9' * 30} CE error on CPU#0 ()").seen
    assert huge.count == 1


def test_lines_that_belong_together_are_one_event():
    aer = (
        "pcieport 0000:00:03.1: AER: Corrected error received: 0000:00:03.1",
        "pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (x)",
        "pcieport 0000:00:03.1:   device [1022:1453] error status/mask=00001000/00006000",
        "pcieport 0000:00:03.1:    [12] Timeout",
    )
    (event,) = counted(log_of(*aer, *aer).seen)
    assert (event.event.kind, event.count) == ("pcie_error", 2)
    switch = "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 12028, "
    lines = [
        switch + rest for rest in ("Data {0x1, 0x2}", "Non-fatal, Link 62 x", "Severity 0 Engine")
    ]
    (event,) = counted(log_of(*lines).seen)
    assert (event.event.code, event.count) == (12028, 1)
    (alone,) = counted(log_of(lines[0]).seen)
    assert alone.count == 1


def test_a_lost_gpu_is_named_by_the_line_before():
    (one,) = log_of(
        "[1.0] NVRM: The NVIDIA GPU 0000:3b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ).seen
    assert (one.event.kind, one.event.pci) == ("gpu_fallen_off_bus", "0000:3b:00")


def test_a_gpu_that_needs_no_recovery_any_more_is_no_error():
    (one,) = log_of(recovery(0)).seen
    assert (one.event.action, one.event.severity) == ("none", "info")
    (one,) = log_of(recovery(1)).seen
    assert (one.event.action, one.event.severity) == ("reset_gpu", "error")


def test_of_several_recovery_actions_the_last_one_holds():
    (one,) = log_of(recovery(1), recovery(2), recovery(1)).seen
    assert (one.event.action, one.count) == ("reset_gpu", 3)


def test_memory_stays_bounded_and_what_is_left_out_is_counted():
    log = KernelLog(max_seen=10)
    log.feed("".join(f"{xid(45, pid=n)}\n" for n in range(100)).encode())
    assert len(log.seen) == 10
    assert log.beyond_limits == 90


def test_a_thousand_processes_on_each_of_eight_gpus_fit_in_for_two_codes():
    """And some more: 20,000 different events are kept."""
    log = log_of(*(xid(45, pid=number) for number in range(20_001)))
    assert (len(log.seen), log.beyond_limits) == (20_000, 1)


def test_control_characters_of_a_line_are_not_kept():
    event = read(
        b"NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=\x1b]0;owned\x07, \x1b[31m<b>x</b>\x9b"
    )
    assert event is not None
    assert event.text.isprintable()
    assert event.comm.isprintable()
