"""Checks of how ranks are started: as many as GPUs, and at a host that exists."""

from __future__ import annotations

from rankscope_analyzers.preflight.environment import environment
from rankscope_analyzers.preflight.job import (
    Job,
    NotApplicableError,
    Role,
    UndecidedError,
    replicas,
)
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.values import count, mapping, mappings, text

_PROCESSES = ("--nproc_per_node", "--nproc-per-node", "--num_processes_per_node")
_ENDPOINTS = ("--rdzv_endpoint", "--rdzv-endpoint", "--master_addr", "--master-addr")
_AUTOMATIC = frozenset({"auto", "gpu"})
_SHOWN = 40  # characters that are not part of a number


def _option(role: Role, names: tuple[str, ...]) -> str | None:
    for word, after in role.words():
        name, equals, value = word.partition("=")
        if name in names:
            return (value if equals else after).strip("'\";")
    return None


def _gpu_count(job: Job, role: Role) -> Outcome:
    processes, where = _processes(job, role)
    if not role.gpus:
        return _without_gpus(role, processes or "", where)
    if processes is None:
        processes, where = _by_variable(job, role)
    if processes in _AUTOMATIC:
        return passed(f"{where}: {processes}, {role.gpus} GPUs")
    ranks = count(processes)
    if ranks is None:
        raise UndecidedError(f"{where} is {processes[:_SHOWN]!r}")
    seen = f"{where}: {processes}, and {role.gpus} GPUs"
    expected = f"one process for each GPU: {role.gpus}"
    if ranks > role.gpus:
        return failed(f"{seen}: two ranks share one", expected, f"correct {where} or the limits")
    if ranks < role.gpus:
        return warned(f"{seen}: some stay idle", expected, f"correct {where} or the limits")
    return passed(seen)


def _without_gpus(role: Role, processes: str, where: str) -> Outcome:
    role.complete()
    role.need_no_claims("GPUs")
    if not processes.isdecimal():
        raise NotApplicableError("the job has no GPUs")
    return warned(
        f"{where}: {processes}, and no GPUs",
        "GPUs for the processes, unless they compute on CPUs",
        "add GPUs to the limits",
    )


def _by_variable(job: Job, role: Role) -> tuple[str, str]:
    """Return the number of processes from torchrun's variable, or its default."""
    given = environment(job, role).get("PET_NPROC_PER_NODE")
    if given is not None:
        return given, "PET_NPROC_PER_NODE"
    if job.kind == "PyTorchJob" and "torchrun" in role.command:
        return _set_by_operator(job)
    if role.gpus == 1 or "torchrun" in role.command:
        return "1", "processes by default"
    raise UndecidedError("the number of processes per pod is unknown")


def _set_by_operator(job: Job) -> tuple[str, str]:
    """Return what training-operator 1.8 and later give to torchrun if there is no nprocPerNode."""
    elastic = text(mapping(job.body, "spec", "elasticPolicy").get("nProcPerNode"))
    if elastic:
        return elastic, "elasticPolicy.nProcPerNode"
    return "auto", "nprocPerNode by default"


def _processes(job: Job, role: Role) -> tuple[str | None, str]:
    given = _option(role, _PROCESSES)
    if given is not None:
        return given, "--nproc-per-node"
    paths = {
        "PyTorchJob": ("nprocPerNode", ("spec",)),
        "MPIJob": ("slotsPerWorker", ("spec",)),
        "TrainJob": ("numProcPerNode", ("spec", "trainer")),
    }
    if job.kind not in paths:
        return None, ""
    key, path = paths[job.kind]
    return text(mapping(job.body, *path).get(key)) or None, key


def _rendezvous_host(job: Job, role: Role) -> Outcome:
    job.need_several()
    given = _option(role, _ENDPOINTS)
    known = environment(job, role)
    endpoint = (
        given if given is not None else known.get("MASTER_ADDR") or known.get("PET_RDZV_ENDPOINT")
    )
    if endpoint is None:
        raise NotApplicableError("the launcher gives the address")
    if "$" in endpoint:
        raise UndecidedError(f"the address is {endpoint}, which is filled in when the pod starts")
    host = endpoint.rpartition(":")[0] if ":" in endpoint else endpoint
    short = host.split(".")[0]
    if host in {"localhost", "127.0.0.1", "::1"}:
        return failed(
            f"{endpoint}, and the job has {job.pods} pods: each waits only for itself",
            "the address of one pod",
            "name the pod of rank 0 or its service",
        )
    if job.cluster.get("Service", job.namespace, short):
        return passed(endpoint)
    if short in _hosts(job):
        return _of_pod(job, role, endpoint, short)
    if host.replace(".", "").isdecimal():
        seen = f"{endpoint} is an address, which changes with the pod"
        return warned(seen, "a name", "name the pod of rank 0 or its service")
    if _resembles(short, job):
        return failed(
            f"{endpoint}, and the job makes no pod of this name",
            "one of " + ", ".join(sorted(_hosts(job))[:4]),
            "name the pod of rank 0 or its service",
        )
    raise UndecidedError(f"the manifests do not show whether {host} exists")


def _of_pod(job: Job, role: Role, endpoint: str, host: str) -> Outcome:
    """Return whether other pods can look up the name of this one: a Job gives it no subdomain."""
    if job.kind == "Job" and host != job.name and not role.spec.get("subdomain"):
        return failed(
            f"{endpoint}, and pods without a subdomain have no names that others can look up",
            "a subdomain, and a headless Service of the same name",
            "set subdomain in the pod template, and create the Service",
        )
    return passed(endpoint)


def _hosts(job: Job) -> set[str]:
    """Return the host names of a job's pods, and of services that its controller creates."""
    found = {job.name}
    for role in job.roles:
        if role.is_pod:
            found |= {role.name, text(role.spec.get("hostname")) or role.name}
            continue
        for index in range(role.replicas or 0):
            found |= _names(job, role, index)
    return found


def _names(job: Job, role: Role, index: int) -> set[str]:
    name, part = job.name, role.name.lower()
    jobs = _child_jobs(job, role)
    each = max(1, (role.replicas or 0) // jobs)
    indexed = text(mapping(job.body, "spec").get("completionMode")) == "Indexed"
    by_kind = {
        "PyTorchJob": {f"{name}-{part}-{index}"},
        "MPIJob": {f"{name}-{part}-{index}", f"{name}-launcher"},
        "TrainJob": {f"{name}-node-0-{index}"},
        "JobSet": {f"{name}-{part}-{index // each}-{index % each}"},
        "Job": {f"{name}-{index}"} if indexed else set(),
        "Volcano Job": {f"{name}-{part}-{index}"},
        "LeaderWorkerSet": {f"{name}-{index}"},
        "RayJob": {f"{name}-head-svc"},
        "RayCluster": {f"{name}-head-svc"},
    }
    return by_kind.get(job.kind, {part})


def _child_jobs(job: Job, role: Role) -> int:
    """Return how many Jobs a JobSet makes of a part."""
    for one in mappings(mapping(job.body, "spec").get("replicatedJobs")):
        if text(one.get("name")) == role.name:
            return replicas(one.get("replicas")) or 1
    return 1


def _resembles(host: str, job: Job) -> bool:
    """Return True if a host is named like a pod of this job, or of a job of its kind."""
    roles = {role.name.lower() for role in job.roles} | {
        "master",
        "worker",
        "launcher",
        "node",
        "leader",
    }
    return bool(job.name) and (
        host.startswith(f"{job.name}-") or bool(roles & set(host.split("-")))
    )


gpu_count = of_ranks(_gpu_count)
rendezvous_host = of_ranks(_rendezvous_host)
