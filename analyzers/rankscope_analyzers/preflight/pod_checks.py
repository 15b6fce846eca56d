"""Checks of a pod from within, before its ranks start; `docs/preflight.md` describes each."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError
from rankscope_analyzers.preflight.memory_checks import (
    DEFAULT_SHM,
    SHM,
    SHM_AT_LEAST,
    SHM_PER_RANK,
)
from rankscope_analyzers.preflight.network_checks import matching
from rankscope_analyzers.preflight.outcome import Outcome, failed, passed, warned
from rankscope_analyzers.preflight.surroundings import RdmaDevice, Surroundings
from rankscope_analyzers.preflight.values import count, size
from rankscope_analyzers.text.name_lists import listed

LEAST_MEMLOCK = 1 << 30
"""Bytes; NCCL registers some hundred MiB of buffers for each GPU."""

PROCESSES = ("PET_NPROC_PER_NODE", "LOCAL_WORLD_SIZE", "NPROC_PER_NODE")
FROM_VARIABLES = (
    *("rdma-transport", "gpudirect", "nccl-variables", "nccl-debug", "progress-visible"),
)
"""Checks of manifests that the pod's own variables decide as well."""


def as_job(pod: Surroundings) -> Job:
    """Return a job of which this pod is one of several, with its actual variables."""
    limits = {"nvidia.com/gpu": pod.gpus or 0, "rdma/devices": len(pod.rdma or ())}
    variables = [{"name": name, "value": value} for name, value in pod.variables.items()]
    container = {"name": "this", "env": variables, "resources": {"limits": limits}}
    role = Role("this pod", 2, {}, {"containers": [container]})
    return Job("pod", "", "this pod", "from within", [role], {})


def shared_memory(pod: Surroundings) -> Outcome:
    """Check that shared memory is large enough for NCCL and data loaders."""
    if pod.shm_bytes is None:
        raise UndecidedError(f"{SHM} cannot be read")
    if pod.gpus is None:
        raise UndecidedError("the number of GPUs cannot be read")
    needed = max(SHM_AT_LEAST, SHM_PER_RANK * pod.gpus)
    expected = f"{size(needed)} at least"
    remedy = f"mount an emptyDir with medium: Memory and sizeLimit: {size(needed)} at {SHM}"
    seen = f"{SHM} has {size(pod.shm_bytes)}"
    if pod.shm_bytes >= needed:
        return passed(seen)
    if pod.shm_bytes <= DEFAULT_SHM:
        why = "NCCL and data loaders fail with 'No space left on device'"
        return failed(f"{seen}: {why}", expected, remedy)
    return warned(seen, expected, remedy)


def locked_memory(pod: Surroundings) -> Outcome:
    """Check that memory may be locked, as RDMA requires."""
    if pod.rdma is None:
        raise UndecidedError("/dev/infiniband cannot be listed")
    if not pod.rdma:
        raise NotApplicableError("the pod has no RDMA devices")
    if pod.may_lock:
        return passed("IPC_LOCK lifts the limit")
    if pod.memlock_bytes is None or pod.may_lock is None:
        raise UndecidedError("the limit on locked memory cannot be read")
    if isinf(pod.memlock_bytes):
        return passed("no limit")
    expected = "no limit"
    remedy = "add the capability IPC_LOCK, and run as root, outside of a user namespace"
    seen = f"{size(pod.memlock_bytes)} may be locked, and no IPC_LOCK lifts that"
    if pod.memlock_bytes < LEAST_MEMLOCK:
        return failed(f"{seen}: registering RDMA memory fails", expected, remedy)
    return warned(seen, expected, remedy)


def interfaces(pod: Surroundings) -> Outcome:
    """Check that NCCL_SOCKET_IFNAME selects an interface of the pod that is up."""
    if pod.interfaces is None:
        raise UndecidedError("the pod's interfaces cannot be listed")
    value = pod.variables.get("NCCL_SOCKET_IFNAME", "")
    there = list(pod.interfaces)
    if not value:
        # The kernel gives each pod a tunl0 or sit0, which is down, if the node has such tunnels.
        usable = [name for name, is_up in pod.interfaces.items() if is_up]
        seen = f"NCCL_SOCKET_IFNAME is not set, and the pod has {listed(usable)}"
        if len(usable) < 2 or pod.rdma:
            return passed(seen)
        return warned(
            seen,
            "the interface for gradients",
            "set NCCL_SOCKET_IFNAME to the fast one",
        )
    found = matching(value, there)
    if not found:
        return failed(
            f"NCCL_SOCKET_IFNAME={value} matches none of {listed(there) or 'no interfaces'}",
            "a value that matches an interface of the pod",
            "correct it, or find out why the network was not attached",
        )
    up = [name for name in found if pod.interfaces[name]]
    if not up:
        return failed(
            f"NCCL_SOCKET_IFNAME={value} matches {listed(found)}, of which none is up",
            "an interface that is up",
            "find out why the network was not attached",
        )
    return passed(f"NCCL_SOCKET_IFNAME={value} matches {listed(up)}")


def rdma(pod: Surroundings) -> Outcome:
    """Check that RDMA devices exist, may be opened, and have active ports."""
    if pod.rdma is None:
        raise UndecidedError("/dev/infiniband cannot be listed")
    wanted = pod.variables.get("NCCL_IB_HCA", "")
    if not pod.rdma:
        if not wanted:
            raise NotApplicableError("the pod has no RDMA devices")
        return failed(
            f"NCCL_IB_HCA={wanted}, and no /dev/infiniband/uverbs: NCCL takes sockets",
            "the devices that the variable names",
            "request the device plugin's resource in the pod's limits",
        )
    names = matching(_without_ports(wanted), list(pod.rdma)) if wanted else list(pod.rdma)
    if not names:
        return failed(
            f"NCCL_IB_HCA={wanted} matches none of {listed(list(pod.rdma))}",
            "a value that matches a device of the pod",
            "correct it",
        )
    shut = [name for name in names if not pod.rdma[name].usable]
    if shut:
        return failed(
            f"{listed(shut)} cannot be opened", "devices for this user", "see the device plugin"
        )
    return _active({name: pod.rdma[name] for name in names}, asked=bool(wanted))


def _without_ports(value: str) -> str:
    """Return NCCL_IB_HCA without the port that may follow each name."""
    return ",".join(one.partition(":")[0] for one in value.split(","))


def _active(devices: dict[str, RdmaDevice], *, asked: bool) -> Outcome:
    unread = [name for name, device in devices.items() if not device.ports]
    down = sorted(_down(devices))
    count = sum(len(device.ports) for device in devices.values())
    expected, remedy = "active ports", "check cable and switch port, and cordon the node"
    if down and (asked or len(down) == count) and not unread:
        return failed(f"not active: {listed(down)}", expected, remedy)
    if down:
        return warned(f"not active: {listed(down)} of {count} ports", expected, remedy)
    if unread:
        raise UndecidedError(f"the ports of {listed(unread)} cannot be read")
    return passed(f"{count} ports are active")


def _down(devices: dict[str, RdmaDevice]) -> Iterator[str]:
    for name, device in devices.items():
        yield from (f"{name}/{port}" for port, active in device.ports.items() if not active)


def gpu_count(pod: Surroundings) -> Outcome:
    """Check that the pod has a GPU for each process that is to start in it."""
    if pod.gpus is None:
        raise UndecidedError("/dev cannot be listed")
    given = next(((name, pod.variables[name]) for name in PROCESSES if name in pod.variables), None)
    asked = pod.variables.get("NVIDIA_VISIBLE_DEVICES", "") not in {"", "void", "none", "all"}
    if not pod.gpus and asked:
        return failed(
            "NVIDIA_VISIBLE_DEVICES names GPUs, and there is no /dev/nvidia device",
            "the GPUs that the pod was given",
            "check whether the container uses NVIDIA's runtime, and the node's driver",
        )
    if not pod.gpus:
        raise NotApplicableError("the pod has no GPUs")
    ranks = None if given is None else count(given[1])
    if given is None or ranks is None:
        raise NotApplicableError("no variable gives the number of processes")
    seen = f"{given[0]}={given[1]}, and {pod.gpus} GPUs"
    expected, remedy = f"one process for each GPU: {pod.gpus}", f"correct {given[0]} or the limits"
    if ranks > pod.gpus:
        return failed(f"{seen}: two ranks share one", expected, remedy)
    if ranks < pod.gpus:
        return warned(f"{seen}: some stay idle", expected, remedy)
    return passed(seen)
