"""Checks of shared memory, of locked memory, and of the locality of a rank's CPUs and memory."""

from __future__ import annotations

import re

from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.values import mapping, mappings, size, text, texts
from rankscope_analyzers.workloads.quantities import quantity

SHM = "/dev/shm"  # noqa: S108
DEFAULT_SHM = 64 << 20  # what container runtimes mount without a volume
SHM_PER_RANK = 128 << 20  # NCCL's buffers and a few loader workers
SHM_AT_LEAST = 1 << 30


def _mounted(role: Role, path: str) -> str | None:
    for one in mappings(role.trainer.get("volumeMounts")):
        if text(one.get("mountPath")).rstrip("/") == path:
            return text(one.get("name"))
    return None


def _shared_memory(job: Job, role: Role) -> Outcome:
    needed = max(SHM_AT_LEAST, SHM_PER_RANK * role.gpus)
    expected = f"an emptyDir of medium Memory at /dev/shm, at least {size(needed)}"
    remedy = f"mount an emptyDir with medium: Memory and sizeLimit: {size(needed)} at /dev/shm"
    if role.spec.get("hostIPC") is True:
        return passed("hostIPC: the node's /dev/shm")
    name = _mounted(role, SHM)
    if name is None:
        role.complete()
        if not role.gpus and not job.several:
            raise NotApplicableError("one pod without GPUs")
        return failed(
            "64 MiB, the default: NCCL and data loaders fail with 'No space left on device'",
            expected,
            remedy,
        )
    for volume in mappings(role.spec.get("volumes")):
        if text(volume.get("name")) == name:
            return _shm_volume(role, volume, needed, expected, remedy)
    role.complete()
    return failed(f"no volume is named {name!r}", expected, remedy)


def _shm_volume(role: Role, volume: object, needed: int, expected: str, remedy: str) -> Outcome:
    if not isinstance(volume, dict) or "emptyDir" not in volume:
        return warned(f"{SHM} is no emptyDir", expected, remedy)
    given = mapping(volume, "emptyDir")
    if text(given.get("medium")) != "Memory":
        return failed("the emptyDir at /dev/shm is on disk", expected, remedy)
    limit = quantity(given.get("sizeLimit"))
    memory = quantity(mapping(role.trainer, "resources", "limits").get("memory"))
    if limit is None:
        return passed("in memory, limited by the pod's memory")
    if memory is not None and limit > memory:
        return warned(
            f"{size(limit)}, above the container's memory limit of {size(memory)}",
            "a size within the memory limit, towards which it counts",
            "raise the memory limit or lower sizeLimit",
        )
    if limit <= DEFAULT_SHM:
        return failed(f"sizeLimit {size(limit)}", expected, remedy)
    return (
        passed(size(limit))
        if limit >= needed
        else warned(f"sizeLimit {size(limit)}", expected, remedy)
    )


def _locked_memory(job: Job, role: Role) -> Outcome:
    role.need_rdma()
    script = " ".join(role.command)
    limited = re.search(r"ulimit -[HS]*l (\d+)", script)
    expected, remedy = "unlimited locked memory", "add the capability IPC_LOCK"
    if limited:
        seen = f"the command sets ulimit -l {limited[1]}: registering RDMA memory fails"
        return failed(seen, expected, "use ulimit -l unlimited, or leave it out")
    security = mapping(role.trainer, "securityContext")
    if security.get("privileged") is True:
        return passed("privileged")
    added = {
        one.upper().removeprefix("CAP_")
        for one in texts(mapping(security, "capabilities").get("add"))
    }
    user = security.get("runAsUser", mapping(role.spec, "securityContext").get("runAsUser"))
    if not added & {"IPC_LOCK", "ALL"}:
        role.complete()
        return warned("no IPC_LOCK: the container runtime's own limit decides", expected, remedy)
    if role.spec.get("hostUsers") is False:
        return warned(
            "IPC_LOCK in a user namespace (hostUsers: false), outside of which it does not count",
            expected,
            "remove hostUsers, or have the container runtime's limit raised on the nodes",
        )
    if isinstance(user, int) and user:
        return warned(
            f"IPC_LOCK for user {user}: added capabilities only apply to root",
            expected,
            "have the container runtime's limit raised on the nodes, or run as root",
        )
    return passed("IPC_LOCK")


def _numa(job: Job, role: Role) -> Outcome:
    role.need_gpus()
    limits = mapping(role.trainer, "resources", "limits")
    requests = {**limits, **mapping(role.trainer, "resources", "requests")}
    expected = "the same whole number of CPUs, and the same memory, as request and limit"
    remedy = "make requests and limits equal; the kubelet only pins CPUs of such pods"
    for name in ("cpu", "memory"):
        limit, request = quantity(limits.get(name)), quantity(requests.get(name))
        if limit is not None and request is not None and request > limit:
            return failed(
                f"{name}: request above limit, which the API server refuses", expected, remedy
            )
        if limit is None or limit != request:
            role.complete()
            seen = f"{name}: request {_amount(requests, name)}, limit {_amount(limits, name)}"
            return warned(seen, expected, remedy)
    other = _unequal(role)
    if other:
        role.complete()
        return warned(other, f"{expected}, of all containers", remedy)
    cores = quantity(limits.get("cpu")) or 0.0
    if cores != int(cores):
        return warned(f"{cores:g} CPUs, not a whole number", expected, remedy)
    return passed(f"{cores:g} CPUs, memory {text(limits.get('memory'))}")


def _unequal(role: Role) -> str:
    """Return which other container has unequal requests and limits, empty if none has.

    One is enough for the pod to be of another class than Guaranteed.
    """
    if mapping(role.spec, "resources"):  # the pod's own decide
        return ""
    for one in (*role.containers, *role.initializers):
        limits = mapping(one, "resources", "limits")
        requests = {**limits, **mapping(one, "resources", "requests")}
        for name in ("cpu", "memory"):
            limit = quantity(limits.get(name))
            if one is not role.trainer and (limit is None or limit != quantity(requests.get(name))):
                seen = f"request {_amount(requests, name)}, limit {_amount(limits, name)}"
                return f"{name} of container {text(one.get('name'))}: {seen}"
    return ""


def _amount(resources: object, name: str) -> str:
    return text(mapping(resources).get(name)) or "none"


shared_memory = of_ranks(_shared_memory)
locked_memory = of_ranks(_locked_memory)
numa = of_ranks(_numa)
