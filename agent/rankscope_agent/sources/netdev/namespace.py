"""Whose network namespace the agent sees: the node's, or only that of its own pod.

A pod's eth0 must never be mistaken for the node's. These distinguish them: the inode of the initial
PID namespace, which is the same in every kernel; a procfs or sysfs that was mounted from the node;
and hardware, which a pod's own sysfs does not show.
"""

from __future__ import annotations

import threading
from pathlib import Path

from rankscope_agent.sources.kernel_files import names_in, read_text
from rankscope_agent.sources.pci.address import is_virtual_function
from rankscope_agent.sources.pid_namespace import OWN_PROCFS, shows_node_processes

OWN_SYSFS = Path("/sys")

NETLINK_IMPORT = threading.Lock()
"""Held while pyroute2 is imported: its modules import each other, and if two collectors' threads
start with different ones, one of them sees a half-initialised module."""

CAP_SYS_ADMIN, CAP_SYS_PTRACE = 21, 19  # include/uapi/linux/capability.h

MAX_LOOKED_AT = 8192
"""Interfaces that are read; a node has a few per pod."""


def node_net(procfs: Path) -> Path | None:
    """Return the directory with the node's network tables; None if only a pod's are available.

    A directory named `net` that is not a link belongs to a recording: in a real procfs it links to
    the reader's own.
    """
    if (procfs / "1" / "net").is_dir():
        return procfs / "1" / "net" if shows_node_processes(procfs) else None
    recorded = procfs / "net"
    return recorded if recorded.is_dir() and not recorded.is_symlink() else None


def in_node_network(
    procfs: Path, sysfs: Path, own_procfs: Path = OWN_PROCFS, own_sysfs: Path = OWN_SYSFS
) -> bool:
    """Return True if this process's sockets and this sysfs show the node's network.

    There is one sysfs file system per network, so two mounts of the same network have the same
    device.
    """
    try:
        if sysfs.stat().st_dev != own_sysfs.stat().st_dev:
            return False
    except OSError:
        return False
    if shows_node_processes(procfs, own_procfs):
        try:
            theirs = (procfs / "1" / "ns" / "net").stat()
            ours = (own_procfs / "self" / "ns" / "net").stat()
        except OSError:  # process 1 may not be read
            return sysfs != own_sysfs or has_hardware(sysfs)
        return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
    return has_hardware(sysfs)


def has_hardware(sysfs: Path) -> bool:
    """Return True if a sysfs shows a device's interface; a virtual function's may be a pod's."""
    root = sysfs / "class" / "net"
    devices = (root / name / "device" for name in names_in(root, MAX_LOOKED_AT)[0])
    return any(device.exists() and not is_virtual_function(device) for device in devices)


def may_enter_networks(procfs: Path, sysfs: Path, own_procfs: Path = OWN_PROCFS) -> bool:
    """Return True if this process is in the node's network and may enter those of pods.

    setns(2) requires CAP_SYS_ADMIN, and opening the namespace of another user's process the right
    to trace it (CAP_SYS_PTRACE).
    """
    held = effective_capabilities(read_text(own_procfs / "self" / "status"))
    needed = 1 << CAP_SYS_ADMIN | 1 << CAP_SYS_PTRACE
    return (
        held & needed == needed
        and shows_node_processes(procfs, own_procfs)
        and in_node_network(procfs, sysfs, own_procfs)
    )


def effective_capabilities(status: str) -> int:
    """Read the effective capabilities, one bit each, in /proc/PID/status; 0 if there are none."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return int(value, 16)
    return 0
