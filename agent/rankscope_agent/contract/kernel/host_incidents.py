"""Groups non-GPU events into incidents, one per device, disk, process or host. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rankscope_agent.contract.kernel.events import Kind
from rankscope_agent.contract.kernel.incidents import Incident, for_fabric
from rankscope_agent.contract.kernel.log import BOOT_SECONDS, TRACED, Seen
from rankscope_agent.contract.kernel.vocabulary import SEVERITIES, Action, Cause, stronger

BRING_UP_SECONDS = 300.0
"""Links that go down and come up this soon after boot are still being configured."""

FLAPS = 3
"""If a link came up this many times, it must have been down in between: drivers report it twice
when an interface is configured."""

STORAGE_MODULES = frozenset(
    {"nfs", "nfsv4", "sunrpc", "lustre", "ptlrpc", "ceph", "fuse", "ext4", "jbd2", "xfs", "btrfs"}
    | {"mmfs26", "mmfslinux", "nvme", "nvme_core", "dm_mod", "beegfs", "wekafsio", "cifs"}
)
"""Modules in a hung task's stack which show that it waits for a disk or file server."""

DEVICE_MODULES = frozenset({"nvidia", "nvidia_uvm", "nvidia_modeset", "amdgpu", "i915"})
"""Modules in a hung task's stack which show that it waits in a GPU driver."""

ADAPTER_MODULES = frozenset({"mlx5_core", "mlx5_ib", "ib_core", "bnxt_en", "bnxt_re", "ice", "ena"})
"""Modules in a hung task's stack which show that it waits in the driver of a network adapter."""

SOFTWARE_RDMA_MODULES = frozenset({"rdma_rxe", "siw"})
"""Modules that implement RDMA in software, over any Ethernet adapter."""

KINDS: Mapping[Kind, tuple[str, str]] = {
    "sxid": ("NVSwitch {pci}", "NVSwitch error {code}"),
    "pcie_error": ("PCIe device {pci}", "PCIe errors"),
    "pcie_unrecovered": ("PCIe device {pci}", "the driver could not recover from PCIe errors"),
    "pcie_link_down": ("PCIe slot {device}", "its link went down"),
    "slow_pcie_link": ("PCIe device {pci}", "a link below its own speed or width leads to it"),
    "iommu_fault": ("PCIe device {pci}", "the IOMMU refused its access to memory"),
    "device_inaccessible": ("PCIe device {pci}", "it no longer answers"),
    "nic_hot": ("NIC {device}", "its sensors report a high temperature"),
    "cpu_throttled": ("the CPU", "it is too hot, so its clock is throttled"),
    "peer_memory_missing": (
        "GPUDirect RDMA",
        "nvidia_peermem was built for other RDMA modules and is not loaded",
    ),
    "nic_command_timeout": ("NIC {device}", "its firmware does not answer commands"),
    "nic_firmware_fault": ("NIC {device}", "its firmware reports a fault"),
    "nic_command_refused": ("NIC {device}", "a register may not be read; harmless"),
    "nic_stray_event": ("NIC {device}", "events for queues that are gone; harmless"),
    "nic_probe_failure": ("NIC {device}", "its driver could not start it"),
    "software_rdma_error": (
        "software RoCE (rdma_rxe)",
        "it reports errors; RDMA runs on the CPU here, not on an adapter",
    ),
    "nic_low_power": ("NIC {device}", "its PCIe slot gives too little power"),
    "nic_transmit_timeout": ("NIC {device}", "it stopped sending (transmit queue timed out)"),
    "nic_cable_unplugged": ("NIC {device}", "its cable was unplugged"),
    "nic_module_error": ("NIC {device}", "its cable or transceiver reports an error"),
    "link_down": ("link {device}", "it went down"),
    "oom_kill": ("process {comm}", "killed for lack of memory"),
    "oom_scope": ("process {comm}", "killed for lack of memory"),
    "oom_search": ("the node's memory", "{comm} found none left; the log lacks the victim"),
    "hung_task": ("the kernel", "a task hangs in the kernel ({comm})"),
    "soft_lockup": ("the kernel", "a CPU was stuck ({comm})"),
    "hard_lockup": ("the kernel", "a CPU was stuck with interrupts off"),
    "cpu_stall": ("the kernel", "a CPU stalled"),
    "kernel_fault": ("the kernel", "a fault in the kernel"),
    "kernel_panic": ("the kernel", "the kernel panicked"),
    "user_fault": ("process {comm}", "it crashed"),
    "memory_corrected": ("memory {device}", "errors that ECC corrected"),
    "memory_uncorrected": ("memory {device}", "errors that ECC could not correct"),
    "machine_check": ("memory", "machine checks"),
    "disk_error": ("disk {device}", "reads or writes fail"),
    "filesystem_error": ("disk {device}", "its file system is damaged or fails"),
    "nvme_timeout": ("disk {device}", "commands time out"),
    "nvme_lost": ("disk {device}", "it was lost"),
    "network_storage_silent": ("file server {device}", "it does not answer"),
    "gpu_memory_full": ("GPU memory", "programs ask for more than there is left; harmless"),
    "driver_mismatch": ("the GPU driver", "library and kernel module are of different versions"),
}
"""The subject of an event, and what happened to it."""

_DISK = re.compile(r"(?:nvme\d+|(?:[svh]|xv)d[a-z]+|mmcblk\d+)")
FABRIC_MEMBERS = 2
"""If this many switches or GPUs report errors together, the fabric is the cause."""

MERGED_SENTENCES = 2
"""Incidents quoted in the summary of the one that explains them; its events include all of them."""

FABRIC_EFFECTS: frozenset[Cause] = frozenset({"app", "gpu_memory", "nvlink_fabric"})
"""Symptoms on a GPU of a fabric error: refused accesses, poisoned data, dead links."""

NETWORK: frozenset[Kind] = frozenset({"nic_transmit_timeout", "nic_command_timeout", "link_down"})


def host_incidents(seen: Sequence[Seen]) -> Iterator[Incident]:
    """Yield one incident for each subject of the non-GPU events."""
    groups: dict[str, list[Seen]] = {}
    for one in _without_bring_up(tuple(_with_flaps(seen))):
        if one.event.cause != "benign" and one.event.kind in KINDS:
            groups.setdefault(_subject(one), []).append(one)
    for subject, events in groups.items():
        yield _incident(subject, tuple(events))


def _subject(one: Seen) -> str:
    event = one.event
    disk = _DISK.match(event.device) if event.cause == "storage" else None
    device = disk[0] if disk else event.device
    return KINDS[event.kind][0].format(
        pci=event.pci or "of unknown address", device=device, comm=event.comm or "unknown"
    )


def _with_flaps(seen: Iterable[Seen]) -> Iterator[Seen]:
    """Turn links that came up repeatedly into links that went down, logged or not."""
    for one in seen:
        if one.event.kind == "link_up" and one.count >= FLAPS:
            event = replace(
                one.event,
                kind="link_down",
                cause="network_link",
                action="check_cable",
                severity="error",
            )
            yield replace(one, event=event)
        else:
            yield one


def _without_bring_up(seen: Sequence[Seen]) -> Iterator[Seen]:
    """Leave out links that went down and came up again while the node booted."""
    up = {s.event.device: s for s in seen if s.event.kind in {"link_up", "port_state"}}
    for one in seen:
        back = up.get(one.event.device) if one.event.kind == "link_down" else None
        times = (one.last_seconds, back.last_seconds) if back else (None, None)
        if not _is_bring_up(*times):
            yield one


def _is_bring_up(down: float | None, up: float | None) -> bool:
    if down is None or up is None:
        return False
    begun = up - up % BOOT_SECONDS
    return begun <= down <= up <= begun + BRING_UP_SECONDS


def _incident(subject: str, events: tuple[Seen, ...]) -> Incident:
    root = max(events, key=lambda one: (SEVERITIES.index(one.event.severity), -one.order))
    cause, action = root.event.cause, root.event.action
    for one in events:
        action = stronger(action, one.event.action)
    if any(one.event.kind in TRACED for one in events):
        cause = _waiting_for(events, cause)
    action = for_fabric(cause, root.event.severity, action)
    what = KINDS[root.event.kind][1].format(code=root.event.code, comm=root.event.comm or "unknown")
    total = sum(one.count for one in events)
    times = f" ({total} times)" if total > 1 else ""
    where = f", memory cgroup {root.event.cgroup}" if root.event.cgroup else ""
    return Incident(
        cause,
        action,
        root.event.severity,
        subject,
        f"{subject}: {what}{times}{where}",
        root,
        events,
    )


def _waiting_for(events: Iterable[Seen], cause: Cause) -> Cause:
    """Infer from the modules in stack traces what the kernel was waiting for."""
    modules = {module for one in events for module in one.modules}
    if modules & STORAGE_MODULES:
        return "storage"
    if modules & SOFTWARE_RDMA_MODULES:
        return "network_nic"
    if modules & DEVICE_MODULES:
        return "driver"
    return "network_nic" if modules & ADAPTER_MODULES else cause


def settled(gpus: Sequence[Incident], hosts: Sequence[Incident]) -> tuple[Incident, ...]:
    """Merge incidents of GPUs and host that explain one another.

    A file server does not answer over a failing network; tasks hang on failing disks, or in the GPU
    driver while its programs are being removed; programs killed for lack of memory leave clean-up
    codes on their GPU.
    """
    kept = _with_fabric([*gpus, *hosts])
    network = _first(kept, lambda one: one.root.event.kind in NETWORK)
    storage = _first(kept, lambda one: one.cause == "storage")
    if network is not None:
        kept = _merge(kept, network, _comes_of_network)
    elif storage is not None:
        kept = _merge(kept, storage, _is_hang)
    if gpus and (hang := _first(kept, _is_hang)) is not None:
        grave = _first(gpus, lambda one: one.cause != "app" and one.severity in {"error", "fatal"})
        if grave is not None and grave in kept:
            kept = _merge(kept, grave, _is_hang)
        elif hang.cause == "host_kernel":
            kept[kept.index(hang)] = replace(hang, cause="driver")
    killed = _first(kept, lambda one: one.root.event.kind in {"oom_kill", "oom_scope"})
    if killed is not None:
        kept = _merge(kept, killed, lambda one: one.root.event.kind == "oom_search")
    killed = _first(kept, lambda one: one.root.event.kind == "oom_kill")
    if killed is not None:
        victims = {one.event.pid for one in killed.events if one.event.pid}
        kept = _merge(kept, killed, lambda one: _is_only_of(one, victims))
    return tuple(kept)


def _with_fabric(incidents: list[Incident]) -> list[Incident]:
    """Merge GPUs that fault while their switches report errors into the fabric's incident.

    One switch and one GPU may be explained by a program that died; several of either may not.
    """
    switches = [
        one for one in incidents if one.root.event.kind == "sxid" and one.severity != "info"
    ]
    gpus = [
        one for one in incidents if one.subject.startswith("GPU ") and one.cause in FABRIC_EFFECTS
    ]
    if not switches or (len(switches) < FABRIC_MEMBERS and len(gpus) < FABRIC_MEMBERS):
        return incidents
    members = (*switches, *gpus)
    involved = {id(one) for one in members}
    fabric = replace(
        switches[0],
        subject="NVLink fabric",
        severity=max((one.severity for one in members), key=SEVERITIES.index),
        action="drain",
        summary=f"NVLink fabric: {len(switches)} switches and {len(gpus)} GPUs report errors,"
        f" first {members[0].summary}",
        events=tuple(sorted((s for one in members for s in one.events), key=lambda s: s.order)),
    )
    return [*(one for one in incidents if id(one) not in involved), fabric]


def _first(incidents: Iterable[Incident], wanted: Callable[[Incident], bool]) -> Incident | None:
    return next((one for one in incidents if wanted(one)), None)


def _comes_of_network(one: Incident) -> bool:
    """Return True for a silent file server, and for a CPU stuck in the driver of an adapter."""
    return one.root.event.kind == "network_storage_silent" or (
        one.cause == "network_nic" and one.root.event.kind in TRACED
    )


def _is_hang(one: Incident) -> bool:
    return one.root.event.kind == "hung_task"


def _is_only_of(one: Incident, pids: set[int]) -> bool:
    """Return True if an incident is a program's own fault and involves only these processes."""
    return one.cause == "app" and {seen.event.pid for seen in one.events} <= pids


def _merge(
    incidents: Sequence[Incident], into: Incident, wanted: Callable[[Incident], bool]
) -> list[Incident]:
    """Return the incidents, with the selected ones merged into one of them."""
    taken = [one for one in incidents if one is not into and wanted(one)]
    action: Action = into.action
    events = into.events
    for one in taken:
        action = stronger(action, one.action)
        events += one.events
    ids = {id(one) for one in taken}
    summaries = [one.summary for one in taken if one.root.event.kind != "oom_search"]
    also = "".join(f"; {summary}" for summary in summaries[:MERGED_SENTENCES])
    merged = replace(into, action=action, events=events, summary=into.summary + also)
    return [merged if one is into else one for one in incidents if id(one) not in ids]
