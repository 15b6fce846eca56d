"""Samples of training pods: I/O, throttling, pressure and limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rankscope_agent.contract.metrics import host as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.host.nfs import Totals
from rankscope_agent.sources.host.pod_groups import PodGroup
from rankscope_agent.sources.host.tables import (
    MICROSECONDS,
    find_mount,
    parse_flat,
    parse_io,
    parse_memlock,
    parse_pressure,
)
from rankscope_agent.sources.kernel_files import read_text

SHM = "dev/shm"

MAX_MOUNTINFO_BYTES = 1 << 20  # some 5,000 mounts

IO: tuple[tuple[str, Metric, str], ...] = (
    ("rbytes", metrics.POD_IO_BYTES, "read"),
    ("wbytes", metrics.POD_IO_BYTES, "write"),
    ("rios", metrics.POD_IO_OPERATIONS, "read"),
    ("wios", metrics.POD_IO_OPERATIONS, "write"),
)


def group_samples(group: PodGroup) -> Iterator[Sample]:
    """Yield the counters of a pod's cgroup."""
    counts = parse_io(group.text("io.stat"))
    for name, metric, direction in IO:
        if name in counts:
            yield Sample(metric, (group.uid, direction), counts[name])
    for resource in ("cpu", "memory", "io"):
        waited = parse_pressure(group.text(f"{resource}.pressure")).get("some")
        if waited is not None:
            yield Sample(metrics.POD_PRESSURE, (group.uid, resource), waited)
    yield from _throttling(group)
    kills = parse_flat(group.text("memory.events")).get("oom_kill")
    if kills is not None:
        yield Sample(metrics.POD_OOM_KILLS, (group.uid,), kills)


def _throttling(group: PodGroup) -> Iterator[Sample]:
    """Yield throttling; a pod without a limit has no periods."""
    cpu = parse_flat(group.text("cpu.stat"))
    for name, kind in (("nr_periods", "all"), ("nr_throttled", "throttled")):
        if name in cpu:
            yield Sample(metrics.POD_PERIODS, (group.uid, kind), cpu[name])
    if "throttled_usec" in cpu:
        seconds = cpu["throttled_usec"] * MICROSECONDS
        yield Sample(metrics.POD_THROTTLED, (group.uid,), seconds)


def process_samples(procfs: Path, uid: str, process: int) -> Iterator[Sample]:
    """Yield the limit of locked memory and the shared memory of a process (1: the node's)."""
    process_directory = procfs / str(process)
    limit = parse_memlock(read_text(process_directory / "limits"))
    if limit is not None:
        yield Sample(metrics.MEMLOCK, (uid,), limit)
    mount = find_mount(read_text(process_directory / "mountinfo", MAX_MOUNTINFO_BYTES), f"/{SHM}")
    # Only a tmpfs is queried: a file system that a pod mounted from elsewhere may never answer.
    if mount is None or mount.kind != "tmpfs":
        return
    size: int | None = mount.size_bytes
    state = _state(process_directory / "root" / SHM, mount.device) or _state(
        Path("/") / SHM, mount.device
    )
    if state is not None:
        size = state.f_blocks * state.f_frsize
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        yield Sample(metrics.SHM_USED, (uid,), used)
    if size is not None:
        yield Sample(metrics.SHM_SIZE, (uid,), size)


def _state(process_directory: Path, device: str) -> os.statvfs_result | None:
    """Return the state of a file system; None if it is another one or access is denied.

    We may be denied access to the roots of other processes; our own /dev/shm is the node's if we
    run there.
    """
    try:
        found = process_directory.stat().st_dev
        same = f"{os.major(found)}:{os.minor(found)}" == device
        return os.statvfs(process_directory) if same else None
    except OSError:
        return None


def nfs_samples(totals: Totals, uids: frozenset[str]) -> Iterator[Sample]:
    """Yield the operations of NFS mounts of these pods and of the node itself."""
    for (pod, kind), total in totals.items():
        if pod and pod not in uids:
            continue
        labels = (pod, kind)
        yield Sample(metrics.NFS_OPERATIONS, labels, total.operations)
        yield Sample(metrics.NFS_RETRANSMISSIONS, labels, total.retransmissions)
        yield Sample(metrics.NFS_TIMEOUTS, labels, total.timeouts)
        yield Sample(metrics.NFS_ROUND_TRIP, labels, total.round_trip_seconds)
