"""The series of a node's pods: pure, from what is known to samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rankscope_agent.contract.metrics import pods as metrics
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.job_series import Members, life_samples, status_samples
from rankscope_agent.sources.pods.launchers import job_id
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.placement import PlacedRank, place_ranks, refused_names
from rankscope_agent.sources.pods.placement_view import HeldDevice, PlacementView
from rankscope_agent.sources.pods.processes import environment_hash
from rankscope_agent.sources.pods.records import Pod
from rankscope_agent.sources.pods.training_pods import is_training
from rankscope_agent.sources.pods.unseen_ranks import started_samples

PHASES = frozenset(("Pending", "Running", "Succeeded", "Failed", "Unknown"))


def placement_samples(
    view: PlacementView,
    directory: PodDirectory,
    node: str,
    job_labels: Mapping[str, Sequence[str]],
    now_unix_seconds: float,
) -> Iterator[Sample]:
    """Yield the series about jobs, devices and ranks on this node."""
    probed = directory.probed
    ranks = tuple(
        rank
        for rank in place_ranks(view, directory)
        if not probed.contradict(rank.job_id, rank.process.identity.world_size)
    )
    jobs = jobs_of(view, directory)
    yield from _rejected(view, directory)
    yield from _jobs(jobs, job_labels)
    loops = directory.looping(now_unix_seconds)
    yield from status_samples(jobs, loops, ranks, probed.attempts)
    yield from _happened(jobs, directory, now_unix_seconds)
    yield from _devices(view, directory, node, ranks)
    yield from _unhealthy(directory, node)
    for rank in _unique(ranks, directory):
        known = (rank.job_id, rank.process.identity.rank) in probed.ranks
        loaded = not rank.pod_uid or rank.pod_uid in probed.loaded
        yield from _rank(rank, node, probed=known, loaded=loaded)
    seen = {(rank.job_id, rank.process.identity.rank) for rank in ranks}
    unseen = probed.loaded.difference(rank.pod_uid for rank in ranks)
    yield from started_samples(jobs, {*seen, *probed.ranks}, unseen)


def _rejected(view: PlacementView, directory: PodDirectory) -> Iterator[Sample]:
    """Count uses of a job's name by others, and invalid job names."""
    refused = refused_names(view, directory)
    for reason, count in Counter(error.reason for _, error in refused).items():
        yield metrics.JOB_NAMES_REJECTED.sample(count, reason=reason)


def jobs_of(view: PlacementView, directory: PodDirectory) -> Mapping[str, Members]:
    """Return the pods of each training job on this node, oldest first."""
    holders = {held.pod_uid for held in view.devices}
    found: dict[str, list[tuple[Pod, Membership]]] = {}
    for pod in directory.pods():
        member = directory.member(pod)
        if member is not None and (pod.uid in holders or is_training(pod, member)):
            name = directory.job_of(pod.uid) or job_id(pod, member)
            found.setdefault(name, []).append((pod, member))
    return found


def _jobs(jobs: Mapping[str, Members], job_labels: Mapping[str, Sequence[str]]) -> Iterator[Sample]:
    """Yield one info series per job; if its pods disagree, the oldest pod counts."""
    for name, members in jobs.items():
        yield _job(name, *members[0], job_labels)
    for name, members in jobs.items():
        phases = Counter(pod.phase if pod.phase in PHASES else "Unknown" for pod, _ in members)
        for phase, count in phases.items():
            yield metrics.JOB_PODS.sample(count, job_id=name, phase=phase)


def _happened(
    jobs: Mapping[str, Members], directory: PodDirectory, now_unix_seconds: float
) -> Iterator[Sample]:
    """Yield the history of current jobs, and of those whose pods are gone, for a while."""
    running = frozenset(
        name for name, members in jobs.items() if not all(pod.ended for pod, _ in members)
    )
    yield from life_samples(directory.lives(frozenset(jobs), now_unix_seconds), running)


def _job(
    name: str, pod: Pod, member: Membership, job_labels: Mapping[str, Sequence[str]]
) -> Sample:
    return metrics.JOB_INFO.sample(
        1,
        job_id=name,
        kind=member.kind,
        queue=member.queue,
        gang=member.gang,
        parent=member.parent,
        **job_facts(pod, job_labels),
    )


def _devices(
    view: PlacementView, directory: PodDirectory, node: str, ranks: Sequence[PlacedRank]
) -> Iterator[Sample]:
    by_gpu = {rank.uuid: rank for rank in ranks if rank.uuid}
    # As NVML counts them: by PCI address. Minor numbers follow another order on some boards.
    order = {gpu.uuid: str(index) for index, gpu in enumerate(view.gpus)}
    seen: set[tuple[str, ...]] = set()
    for held in view.devices:
        sample = (
            _gpu(held, directory, node, by_gpu, order)
            if held.allocation.kind == "gpu"
            else _rdma(held, directory, node)
        )
        if sample.labels not in seen:
            seen.add(sample.labels)
            yield sample


def _gpu(
    held: HeldDevice,
    directory: PodDirectory,
    node: str,
    by_gpu: Mapping[str, PlacedRank],
    order: Mapping[str, str],
) -> Sample:
    pod = directory.find(held.pod_uid)
    member = directory.member(pod) if pod else None
    rank = None if held.device.shared else by_gpu.get(held.uuid)
    # A shared GPU keeps its replica's number: a join by uuid then has no match, whereas two would
    # make the whole query fail.
    uuid = held.allocation.device if held.device.shared or not held.uuid else held.uuid
    minor = "" if held.device.gpu is None else str(held.device.gpu)
    return metrics.GPU_ALLOCATION_INFO.sample(
        1,
        uuid=uuid,
        gpu=order.get(held.uuid, minor),
        resource=held.allocation.resource,
        node=node,
        job_id=directory.job_of(held.pod_uid) or "",
        rank=str(rank.process.identity.rank) if rank else "",
        node_rank=_text(member.node_rank if member else None),
        pod_namespace=held.allocation.namespace,
        pod_name=held.allocation.pod,
        container_name=held.allocation.container,
    )


def _rdma(held: HeldDevice, directory: PodDirectory, node: str) -> Sample:
    return metrics.RDMA_ALLOCATION_INFO.sample(
        1,
        device=held.rdma_device,
        pci=held.device.pci,
        device_id=held.allocation.device,
        resource=held.allocation.resource,
        node=node,
        job_id=directory.job_of(held.pod_uid) or "",
        pod_namespace=held.allocation.namespace,
        pod_name=held.allocation.pod,
        container_name=held.allocation.container,
    )


def _unhealthy(directory: PodDirectory, node: str) -> Iterator[Sample]:
    for pod in directory.pods():
        ill = {e.device: e for e in pod.health if e.health == "Unhealthy" and not pod.ended}
        for entry in ill.values():
            yield metrics.DEVICE_UNHEALTHY.sample(
                1,
                device_id=entry.device,
                resource=entry.resource,
                node=node,
                pod_namespace=pod.namespace,
                pod_name=pod.name,
                container_name=entry.container,
            )


def _unique(ranks: Sequence[PlacedRank], directory: PodDirectory) -> Iterator[PlacedRank]:
    """Yield each rank of a job once: while a pod is being replaced, its rank exists twice.

    Processes of a pod that Kubernetes no longer knows, as one that was deleted by force, come last.
    """
    seen: set[tuple[str, int]] = set()
    for rank in sorted(ranks, key=lambda one: _is_unknown(one, directory)):
        key = (rank.job_id, rank.process.identity.rank)
        if key not in seen:
            seen.add(key)
            yield rank


def _is_unknown(rank: PlacedRank, directory: PodDirectory) -> bool:
    return bool(rank.pod_uid) and directory.find(rank.pod_uid) is None


def _rank(rank: PlacedRank, node: str, *, probed: bool, loaded: bool) -> Iterator[Sample]:
    """Yield a rank's series, unless a probe announces the rank: then the collector of rings does.

    For a pod in which no probe was loaded, nothing else shows that it trains.
    """
    identity = rank.process.identity
    given = probed or (rank.process.probed and loaded)
    yield metrics.RANK_ENVIRONMENT_INFO.sample(
        1,
        job_id=rank.job_id,
        rank=str(identity.rank),
        hash=environment_hash(identity.environment),
    )
    if given and rank.process.started_unix_seconds is not None:
        yield metrics.RANK_STARTED.sample(
            rank.process.started_unix_seconds, job_id=rank.job_id, rank=str(identity.rank)
        )
    if not probed:
        yield training.RANK_INFO.sample(
            1,
            job_id=rank.job_id,
            rank=str(identity.rank),
            node=node,
            local_rank=_text(identity.local_rank, "unknown"),
            world_size=_text(identity.world_size, "unknown"),
            uuid=rank.uuid,
            pod_uid=rank.pod_uid,
            pod_namespace=rank.namespace,
            pod_name=rank.pod,
            container_name=rank.container,
            dp_group="",
            tp_group="",
            pp_stage="",
            launcher=identity.launcher,
            timing_source="none",
        )


def _text(number: int | None, unknown: str = "") -> str:
    return unknown if number is None else str(number)


def job_facts(pod: Pod, labels: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Return every fact of a pod; empty if no label gives it."""
    return {
        fact: next((pod.labels[key] for key in keys if pod.labels.get(key)), "")
        for fact, keys in labels.items()
    }
