"""Joins devices, processes and pods: pure, except for RDMA names from sysfs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.job_names import JobNameError, PodJob
from rankscope_agent.sources.pods.cgroups import Placement
from rankscope_agent.sources.pods.devices import Allocation, parse_device_id
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.gpu_order import NodeGpu, gpu_of_rank
from rankscope_agent.sources.pods.job_naming import refusal
from rankscope_agent.sources.pods.placement_view import HeldDevice, PlacementView
from rankscope_agent.sources.pods.process_scan import RankProcess
from rankscope_agent.sources.pods.records import Pod

NO_JOB = PodJob("", "")


@dataclass(frozen=True, slots=True)
class PlacedRank:
    """A rank found by its process's environment, and where it runs."""

    job_id: str
    process: RankProcess
    pod_uid: str
    namespace: str
    pod: str
    container: str
    uuid: str


def hold(
    allocations: Sequence[Allocation],
    directory: PodDirectory,
    gpus: Sequence[NodeGpu],
    sysfs: Path,
) -> Iterator[HeldDevice]:
    """Join the kubelet's allocations with pods, GPUs and RDMA devices.

    Pods are joined by name because the kubelet's answer contains no uid.
    """
    pods = directory.named()
    minors = {gpu.minor: gpu.uuid for gpu in gpus}
    for allocation in allocations:
        if allocation.kind == "other":
            continue
        device = parse_device_id(allocation.device)
        pod = pods.get((allocation.namespace, allocation.pod))
        by_minor = minors.get(device.gpu, "") if device.gpu is not None else ""
        yield HeldDevice(
            allocation=allocation,
            device=device,
            pod_uid=pod.uid if pod else "",
            uuid=device.uuid or by_minor,
            rdma_device=_rdma_device(sysfs, device.pci) if allocation.kind == "rdma" else "",
        )


def status_allocations(directory: PodDirectory) -> Iterator[Allocation]:
    """Yield the devices in pods' own status, for nodes whose kubelet cannot be queried."""
    for pod in directory.pods():
        for entry in () if pod.ended else pod.health:
            resource = entry.resource.removeprefix("claim:")
            yield Allocation(pod.namespace, pod.name, entry.container, resource, entry.device)


def place_ranks(view: PlacementView, directory: PodDirectory) -> Iterator[PlacedRank]:
    """Return where each rank runs; ranks whose job has no name at all are left out."""
    for process in view.processes:
        placement = process.placement
        job = _job(directory, process)
        if isinstance(job, JobNameError) or not job.job_id:
            continue
        pod = directory.find(placement.pod_uid) if placement.pod_uid else None
        container = container_name(directory, placement)
        held = view.gpus_of(pod.uid, container or None) if pod else [gpu.uuid for gpu in view.gpus]
        yield PlacedRank(
            job_id=job.job_id,
            process=process,
            pod_uid=pod.uid if pod else placement.pod_uid,
            namespace=job.pod_namespace,
            pod=pod.name if pod else "",
            container=container,
            uuid=gpu_of_rank(
                process.identity.local_rank, process.identity.local_world_size, held, view.gpus
            ),
        )


def refused_names(
    view: PlacementView, directory: PodDirectory
) -> Iterator[tuple[str, JobNameError]]:
    """Yield who uses a job name that it may not use, or has none that can be read, and why."""
    for pod in directory.pods():
        if error := refusal(pod) or _unreadable(pod, directory):
            yield f"pod {pod.namespace}/{pod.name}", error
    for process in view.processes:
        job = _job(directory, process)
        if isinstance(job, JobNameError):
            yield f"a process of pod {process.placement.pod_uid or 'none'}", job


def _unreadable(pod: Pod, directory: PodDirectory) -> JobNameError | None:
    problem = directory.membership_problem(pod)
    return JobNameError("unreadable", f"its job cannot be read: {problem}") if problem else None


def _job(directory: PodDirectory, process: RankProcess) -> PodJob | JobNameError:
    """Return the rank that a process is, or why it is not a rank of the job that it names."""
    try:
        return _named(directory, process)
    except JobNameError as error:
        return error


def _named(directory: PodDirectory, process: RankProcess) -> PodJob:
    """Return the rank that a process is; without a job if it has no name or its pod is unknown.

    Raises:
        JobNameError: it may not use the name that it gives.
    """
    stated, uid = process.identity.own_job, process.placement.pod_uid
    if not uid:
        directory.check_outside("", stated)
        if stated and process.user is not None:
            directory.check_process(stated, process.user, process.placement.slurm_job)
        return PodJob(stated, "")
    if not stated and directory.job_of(uid) is None:
        return NO_JOB
    return directory.of_pod(uid, stated) or NO_JOB


def container_name(directory: PodDirectory, placement: Placement) -> str:
    """Return the name of a container by its id; empty if the API server has not listed it."""
    pod = directory.find(placement.pod_uid) if placement.pod_uid else None
    names = (
        container.name
        for container in (pod.containers if pod else ())
        if container.container_id and container.container_id == placement.container_id
    )
    return next(names, "")


def container_environment(directory: PodDirectory, placement: Placement) -> Mapping[str, str]:
    """Return the variables in a container's spec; in all of the pod's if its id is unknown."""
    pod = directory.find(placement.pod_uid) if placement.pod_uid else None
    found: dict[str, str] = {}
    for container in pod.containers if pod else ():
        if container.container_id in {placement.container_id, ""} or not placement.container_id:
            found.update(container.environment)
    return found


def _rdma_device(sysfs: Path, pci: str) -> str:
    """Return the RDMA device at a PCI address; empty if there is not exactly one."""
    if not pci:
        return ""
    try:
        names = [entry.name for entry in (sysfs / "bus/pci/devices" / pci / "infiniband").iterdir()]
    except OSError:
        return ""
    return names[0] if len(names) == 1 else ""
