"""Samples of the node as a whole, from its procfs and sysfs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rankscope_agent.contract.metrics import host as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.host.clock import read_clock
from rankscope_agent.sources.host.tables import (
    parse_flat,
    parse_meminfo,
    parse_pressure,
    parse_softnet,
    parse_tasks,
)
from rankscope_agent.sources.kernel_files import names_in, read_number, read_text

RESOURCES = ("cpu", "memory", "io", "irq")

MAX_TABLE_BYTES = 1 << 18  # softnet_stat has some 120 bytes per CPU, vmstat 5 KB

MAX_DEVICES = 64
"""Memory controllers and NVMe controllers that are read; the largest nodes have some 30."""

NVME_STATES = ("live", "dead")

NVME_EVENTS = ("reset_count", "command_error_count", "command_retries_count")
"""Counters that newer kernels provide along with a controller's state."""

_SEVERITIES = (("ce_count", "corrected"), ("ue_count", "uncorrected"))


def pressure(procfs: Path) -> Iterator[Sample]:
    """Yield pressure stall information of the resources for which the kernel provides it."""
    for resource in RESOURCES:
        for kind, seconds in parse_pressure(read_text(procfs / "pressure" / resource)).items():
            if (resource, kind) != ("cpu", "full"):  # always 0 for a whole node
                yield Sample(metrics.PRESSURE, (resource, kind), seconds)


def memory(procfs: Path) -> Iterator[Sample]:
    """Yield memory use, and the number of processes killed for lack of memory."""
    sizes = parse_meminfo(read_text(procfs / "meminfo"))
    for name, metric in (
        ("MemAvailable", metrics.MEMORY_AVAILABLE),
        ("MemTotal", metrics.MEMORY_TOTAL),
    ):
        if name in sizes:
            yield Sample(metric, (), sizes[name])
    kills = parse_flat(read_text(procfs / "vmstat", MAX_TABLE_BYTES)).get("oom_kill")
    if kills is not None:
        yield Sample(metrics.OOM_KILLS, (), kills)


def tasks(procfs: Path) -> Iterator[Sample]:
    """Yield the number of tasks and its limit."""
    count = parse_tasks(read_text(procfs / "loadavg"))
    limits = (read_number(procfs / "sys" / "kernel" / name) for name in ("pid_max", "threads-max"))
    known = [limit for limit in limits if limit]
    if count is not None and known:
        yield Sample(metrics.PIDS_USED, (), count / min(known))


def received_packets(procfs: Path) -> Iterator[Sample]:
    """Yield received packets dropped by CPUs; the table is the node's, in every pod."""
    found = parse_softnet(read_text(procfs / "net" / "softnet_stat", MAX_TABLE_BYTES))
    if found is not None:
        yield Sample(metrics.SOFTNET_DROPPED, (), found[0])
        yield Sample(metrics.SOFTNET_SQUEEZED, (), found[1])


def boot(procfs: Path) -> Iterator[Sample]:
    """Yield the identity and time of this boot."""
    identity = read_text(procfs / "sys" / "kernel" / "random" / "boot_id", 64)
    if len(identity) == 36 and identity.isascii() and identity.isprintable():
        yield Sample(metrics.BOOT_INFO, (identity,), 1)
    since = parse_flat(read_text(procfs / "stat", MAX_TABLE_BYTES)).get("btime")
    if since is not None:
        yield Sample(metrics.BOOT_TIME, (), since)


def memory_errors(sysfs: Path) -> Iterator[Sample]:
    """Yield the counts of memory controllers, if the kernel has a driver for them."""
    root = sysfs / "devices" / "system" / "edac" / "mc"
    sums: Counter[str] = Counter()
    for name in names_in(root, MAX_DEVICES)[0]:
        for file, severity in _SEVERITIES:
            count = read_number(root / name / file)
            if count is not None:
                sums[severity] += count
                if count:
                    yield Sample(metrics.EDAC_CONTROLLER, (name, severity), count)
    for severity, count in sums.items():
        yield Sample(metrics.EDAC_ERRORS, (severity,), count)


def nvme(sysfs: Path) -> Iterator[Sample]:
    """Yield states and failures of NVMe controllers."""
    root = sysfs / "class" / "nvme"
    names, _ = names_in(root, MAX_DEVICES)
    states = Counter(read_text(root / name / "state", 64) for name in names)
    if names:
        for state in NVME_STATES:
            yield Sample(metrics.NVME_CONTROLLERS, (state,), states.pop(state, 0))
        yield Sample(metrics.NVME_CONTROLLERS, ("other",), states.total())
    for name in names:
        for event in NVME_EVENTS:
            count = read_number(root / name / event)
            if count is not None:
                yield Sample(metrics.NVME_EVENTS, (name, event.removesuffix("_count")), count)


def clock() -> Iterator[Sample]:
    """Yield the state of the clock; nothing if a sandbox forbids reading it."""
    try:
        state = read_clock()
    except OSError:
        return
    yield Sample(metrics.CLOCK_OFFSET, (), state.offset_seconds)
    yield Sample(metrics.CLOCK_MAX_ERROR, (), state.max_error_seconds)
    yield Sample(metrics.CLOCK_SYNCHRONIZED, (), int(state.synchronized))


def file_systems(kubelet: Path) -> Iterator[Sample]:
    """Yield the use of the file system of pods' ephemeral storage, else of our own root.

    A container's root is on the node's file system for images, which is usually the same one or
    fills up in the same way.
    """
    for name, path in (("kubelet", kubelet), ("root", Path("/"))):
        try:
            state = os.statvfs(path)
        except OSError:
            continue
        usable = state.f_blocks - state.f_bfree + state.f_bavail  # excluding root's reserve
        if usable:
            yield Sample(metrics.DISK_USED, (name,), 1 - state.f_bavail / usable)
        if state.f_files:
            yield Sample(metrics.INODES_USED, (name,), 1 - state.f_ffree / state.f_files)
        return
