"""What a process can see of the pod that it runs in, without any request."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

IPC_LOCK_BIT = 14
"""Bit in a process's effective capabilities (linux/capability.h)."""

_MEMLOCK = re.compile(r"^Max locked memory\s+(\d+|unlimited)\s", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-fA-F]{1,32})$", re.MULTILINE)
_ALL_USERS = re.compile(r"\s*0\s+0\s+4294967295\s*")
"""The mapping of users outside of user namespaces (user_namespaces(7))."""

_GPU = re.compile(r"nvidia\d+")
_VERBS = re.compile(r"uverbs\d+")

LINK_UP = frozenset(("up", "unknown"))
"""States of interfaces that carry packets; drivers that do not watch the carrier report unknown."""

PORT_ACTIVE = "4"


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device of the pod.

    Args:
        usable: True if the process can open it.
        ports: whether each port is active, by its number; empty if that cannot be read.
    """

    usable: bool
    ports: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A pod from within; None is what cannot be read.

    Args:
        variables: of this process.
        shm_bytes: size of /dev/shm.
        memlock_bytes: how much may be locked, infinite without a limit.
        may_lock: True if the capability IPC_LOCK lifts that limit.
        interfaces: whether each is up, without the loopback.
        rdma: devices by name.
        gpus: of NVIDIA.
    """

    variables: Mapping[str, str]
    shm_bytes: int | None
    memlock_bytes: float | None
    may_lock: bool | None
    interfaces: Mapping[str, bool] | None
    rdma: Mapping[str, RdmaDevice] | None
    gpus: int | None


def look(
    variables: Mapping[str, str],
    root: Path = Path("/"),
    shm: Path = Path("/dev/shm"),  # noqa: S108
) -> Surroundings:
    """Return what this process sees.

    Args:
        variables: of this process.
        root: directory that contains /proc, /sys and /dev.
        shm: mount point of shared memory.
    """
    limit = _MEMLOCK.search(_text(root / "proc/self/limits") or "")
    devices = _names(root / "dev")
    return Surroundings(
        variables,
        _size(shm),
        float(limit[1].replace("unlimited", "inf")) if limit else None,
        _may_lock(root / "proc/self"),
        _interfaces(root / "sys/class/net"),
        _rdma(root, devices),
        None if devices is None else sum(bool(_GPU.fullmatch(name)) for name in devices),
    )


def _may_lock(process: Path) -> bool | None:
    """Return True if a process's IPC_LOCK lifts its limit, None if that cannot be read.

    In a user namespace it does not: the kernel asks for the capability outside of it (ib_umem_get).
    """
    capabilities = _CAPABILITIES.search(_text(process / "status") or "")
    if capabilities is None:
        return None
    users = _text(process / "uid_map")  # absent in a kernel without user namespaces
    everybody = users is None or bool(_ALL_USERS.fullmatch(users))
    return everybody and bool(int(capabilities[1], 16) >> IPC_LOCK_BIT & 1)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _names(folder: Path) -> list[str] | None:
    """Return the names in a directory, None if it cannot be listed."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return None


def _size(shm: Path) -> int | None:
    try:
        found = os.statvfs(shm)
    except OSError:
        return None
    return found.f_frsize * found.f_blocks


def _interfaces(folder: Path) -> Mapping[str, bool] | None:
    names = _names(folder)
    if names is None:
        return None
    return {
        name: (_text(folder / name / "operstate") or "").strip() in LINK_UP
        for name in names
        if name != "lo" and (folder / name).is_dir()
    }


def _rdma(root: Path, devices: list[str] | None) -> Mapping[str, RdmaDevice] | None:
    if devices is None:
        return None
    verbs = _names(root / "dev/infiniband") if "infiniband" in devices else []
    if verbs is None:
        return None
    found = {}
    for name in filter(_VERBS.fullmatch, verbs):
        device = (_text(root / "sys/class/infiniband_verbs" / name / "ibdev") or name).strip()
        usable = _opens(root / "dev/infiniband" / name)
        found[device] = RdmaDevice(usable, _ports(root / "sys/class/infiniband" / device / "ports"))
    return found


def _opens(device: Path) -> bool:
    """Return True if a device can be opened, which a pod's cgroup may deny whatever its mode is."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _ports(folder: Path) -> Mapping[str, bool]:
    states = {name: _text(folder / name / "state") for name in _names(folder) or ()}
    return {
        name: state.partition(":")[0].strip() == PORT_ACTIVE
        for name, state in states.items()
        if state
    }
