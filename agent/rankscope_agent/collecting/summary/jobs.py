"""The totals of ranks and GPUs of each job on this node; no state, no clock."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.contract.metrics import gpus, nccl_log, pods, training
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Sample

Rank = tuple[str, ...]
"""Job and number of a rank, the labels of its series."""

Pod = tuple[str, str, str]
"""UID, namespace and name; no UID if it only holds a GPU."""


def job_samples(readings: Readings, of_pods: Mapping[Pod, str]) -> Iterator[Sample]:
    """Yield the series of jobs and of their pods.

    Args:
        readings: the samples of the collectors.
        of_pods: the jobs of pods, from `jobs_of_pods`.
    """
    for (uid, namespace, name), job_id in of_pods.items():
        yield metrics.POD_JOB_INFO.sample(
            1, job_id=job_id, pod_uid=uid, pod_namespace=namespace, pod_name=name
        )
    yield from _ranks(readings)
    yield from _gpus(readings)
    yield from _environments(readings)
    yield from _nccl_versions(readings, by_name(of_pods))


def by_name(of_pods: Mapping[Pod, str]) -> dict[tuple[str, ...], str]:
    """Return the jobs of pods by namespace and name."""
    return {(namespace, name): job for (_, namespace, name), job in of_pods.items()}


def jobs_of_pods(readings: Readings) -> dict[Pod, str]:
    """Return the jobs of pods; those of ranks come last and take precedence."""
    return dict(_pods_with_jobs(readings))


def _pods_with_jobs(readings: Readings) -> Iterator[tuple[Pod, str]]:
    ranks = [labels for labels, _ in readings.described(training.RANK_INFO) if labels["pod_name"]]
    known = {(labels["pod_namespace"], labels["pod_name"]) for labels in ranks}
    for labels, _ in readings.described(pods.GPU_ALLOCATION_INFO):
        pod = labels["pod_namespace"], labels["pod_name"]
        if labels["job_id"] and pod not in known:
            yield ("", *pod), labels["job_id"]
    for labels in ranks:
        pod_uid, namespace, name = (labels[k] for k in ("pod_uid", "pod_namespace", "pod_name"))
        yield (pod_uid, namespace, name), labels["job_id"]


def _ranks(readings: Readings) -> Iterator[Sample]:
    ranks = readings.values(training.RANK_ALIVE)
    alive = {rank for rank, value in ranks.items() if value == 1}
    living = Counter(job_id for job_id, _ in alive)
    for job_id in dict.fromkeys(job_id for job_id, _ in ranks):
        yield metrics.JOB_RANKS_ALIVE.sample(living[job_id], job_id=job_id)
    for job_id, size in _world_sizes(readings, alive).items():
        yield metrics.JOB_WORLD_SIZE.sample(size, job_id=job_id)
    for (job_id, stage), busy in _busy_by_stage(readings, alive).items():
        (_, rank), most = max(busy.items(), key=lambda one: one[1])
        yield metrics.STAGE_BUSY.sample(
            statistics.median(busy.values()), job_id=job_id, pp_stage=stage
        )
        yield metrics.STAGE_BUSIEST.sample(most, job_id=job_id, rank=rank, pp_stage=stage)


def _world_sizes(readings: Readings, alive: Collection[Rank]) -> Mapping[str, int]:
    """Return the size of jobs: that of live ranks, because ended ones belong to the past."""
    sizes: dict[str, int] = {}
    for labels, _ in readings.described(training.RANK_INFO):
        job_id, size = labels["job_id"], labels["world_size"]
        if (job_id, labels["rank"]) in alive and size.isdecimal():
            sizes[job_id] = max(int(size), sizes.get(job_id, 0))
    return sizes


def _busy_by_stage(
    readings: Readings, alive: Collection[Rank]
) -> Mapping[tuple[str, str], Mapping[Rank, float]]:
    """Return each live rank's own time in its newest step, by job and pipeline stage.

    The last steps of ended ranks stay on the page for a while, but do not count.
    """
    stages = {
        (labels["job_id"], labels["rank"]): labels["pp_stage"]
        for labels, _ in readings.described(training.RANK_INFO)
    }
    data = readings.values(training.LAST_DATA_SECONDS)
    found: dict[tuple[str, str], dict[Rank, float]] = defaultdict(dict)
    for rank, compute in readings.of(training.LAST_COMPUTE_SECONDS):
        if rank in alive and rank in data:
            job_id, number = rank
            found[job_id, stages.get((job_id, number), "")][rank] = data[rank] + compute
    return found


def _gpus(readings: Readings) -> Iterator[Sample]:
    """Yield the utilisation of each job's GPUs; one that jobs share counts for each of them."""
    utilization = {uuid: value for (_, uuid, _), value in readings.of(gpus.GPU_UTILIZATION)}
    held: dict[str, set[str]] = defaultdict(set)
    for labels, _ in readings.described(pods.GPU_ALLOCATION_INFO):
        if labels["job_id"] and labels["uuid"] in utilization:
            held[labels["job_id"]].add(labels["uuid"])
    for job_id, uuids in held.items():
        busy = sum(utilization[uuid] for uuid in uuids)
        yield metrics.JOB_GPUS.sample(len(uuids), job_id=job_id)
        yield metrics.JOB_BUSY_GPUS.sample(busy, job_id=job_id)


def _environments(readings: Readings) -> Iterator[Sample]:
    found = readings.described(pods.RANK_ENVIRONMENT_INFO)
    # More ranks of a job are gone than it has on this node.
    for job_id, value in dict.fromkeys((one["job_id"], one["hash"]) for one, _ in found):
        yield metrics.JOB_ENVIRONMENT_INFO.sample(1, job_id=job_id, hash=value)


def _nccl_versions(readings: Readings, jobs: Mapping[tuple[str, ...], str]) -> Iterator[Sample]:
    printed = [
        (jobs.get((one["pod_namespace"], one["pod_name"])), one["version"])
        for one, _ in readings.described(nccl_log.NCCL_NET_INFO)
    ]
    for job_id, version in dict.fromkeys(printed):
        if job_id is not None and version != "unknown":
            yield metrics.JOB_NCCL_INFO.sample(1, job_id=job_id, version=version)
