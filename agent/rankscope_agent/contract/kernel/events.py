"""An event of the kernel log, as one line states it, and the kinds of events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.contract.kernel.vocabulary import Action, Cause, Severity
from rankscope_agent.contract.printable import printable

Kind = Literal[
    "xid",
    "sxid",
    "gpu_named",
    "gpu_fallen_off_bus",
    "gpu_init_failure",
    "gpu_probe_failure",
    "gpu_firmware_silent",
    "gpu_firmware_crash",
    "gpu_firmware_no_start",
    "gpu_firmware_missing",
    "gpu_reset_required",
    "gpu_boot_failure",
    "nvlink_training_failure",
    "driver_mismatch",
    "gpu_memory_full",
    "peer_memory_missing",
    "pcie_error",
    "pcie_unrecovered",
    "pcie_link_down",
    "slow_pcie_link",
    "iommu_fault",
    "device_inaccessible",
    "nic_command_timeout",
    "nic_command_refused",
    "nic_stray_event",
    "software_rdma_error",
    "nic_firmware_fault",
    "nic_probe_failure",
    "nic_low_power",
    "nic_hot",
    "nic_transmit_timeout",
    "nic_cable_unplugged",
    "nic_module_error",
    "link_down",
    "link_up",
    "port_state",
    "oom_kill",
    "oom_scope",
    "oom_search",
    "hung_task",
    "soft_lockup",
    "hard_lockup",
    "cpu_stall",
    "kernel_fault",
    "kernel_panic",
    "user_fault",
    "memory_corrected",
    "memory_uncorrected",
    "machine_check",
    "cpu_throttled",
    "disk_error",
    "filesystem_error",
    "nvme_timeout",
    "nvme_lost",
    "network_storage_silent",
    "network_storage_back",
]

MAX_TEXT = 400
"""Characters of a line kept in an event: the register words of an NVLink 5 error end before 250."""

_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?")


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """The contents of one line.

    Args:
        text: the message without its prefix, cut to `MAX_TEXT`, control characters removed.
        code: Xid or SXid.
        pci: `domain:bus:device` in lower case, as the driver writes it; None if not printed.
        pid: the process that the line names; None if it names none, 0 if it prints 0.
        comm: name of that process, at most 15 characters.
        device: any other subject of the event: a port, disk, bridge, memory module or server.
        previous: the Xid that the line gives as its cause.
        count: number of events that the line reports: one unless it states a number.
        detail: whether the line adds to another line of the same event and counts only without it.
        follow_up: what to do next, in a few words.
        cgroup: memory cgroup that ran out of memory.
        victim: memory cgroup of the process that was killed.
        links: the NVLinks of the GPU that the line names.
        reported: whether a report of the node's firmware, which began before it, says how grave it
            is.
    """

    kind: Kind
    cause: Cause
    action: Action
    severity: Severity
    text: str
    code: int | None = None
    pci: str | None = None
    pid: int | None = None
    comm: str = ""
    device: str = ""
    previous: int | None = None
    count: int = 1
    detail: bool = False
    follow_up: str = ""
    cgroup: str = ""
    victim: str = ""
    links: frozenset[int] = frozenset()
    reported: bool = False


def clean(text: str) -> str:
    """Return a message of bounded length without characters that a terminal would interpret."""
    return printable(text[:MAX_TEXT]).strip()


def pci_address(text: str) -> str | None:
    """Return `0000:3b:00` for any notation of a PCI address; None if it is invalid or masked."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    domain = (match[1] or "0").lower().lstrip("0").rjust(4, "0")
    return f"{domain}:{match[2].lower()}:{match[3].lower()}"
