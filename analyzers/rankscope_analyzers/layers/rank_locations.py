"""Where the ranks of jobs run, from all sources: records, rank series, GPUs and adapters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rankscope_agent.contract.metrics import gpus, pods, topology, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import GpuUnknown, RankLocation
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import assumed_gpus, rank_holders
from rankscope_analyzers.steps.frames import StepFrame

READS: tuple[Metric, ...] = (
    training.RANK_INFO,
    *rank_holders.READS,
    *assumed_gpus.READS,
    pods.JOB_INFO,
    gpus.MIG_INFO,
    topology.GPU_NIC_INFO,
)

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Distances of an adapter from a GPU, the nearest first (nvidia-smi topo -m)."""

PARTITION = "MIG-"
"""Prefix of the UUIDs of parts of GPUs, which faults of GPUs do not name."""

MAXIMUM_RANKS = 200_000
"""Ten times the largest existing jobs; a larger rank is invalid."""


_Nics = Mapping[tuple[str, str], tuple[str, ...]]
"""Adapters of GPUs, the nearest first, by node and UUID."""


@dataclass(frozen=True, slots=True)
class RankLocations:
    """Where the ranks of all jobs run.

    Args:
        jobs: for each job, the location of each rank.
    """

    jobs: Mapping[str, Mapping[int, RankLocation]]

    def of(self, job_id: str, frame: StepFrame | None) -> Mapping[int, RankLocation]:
        """Return the locations of a job's ranks, completed by its records."""
        found = dict(self.jobs.get(job_id, {}))
        if frame is not None:
            for column, (rank, node) in enumerate(
                zip(frame.ranks.tolist(), frame.nodes, strict=True)
            ):
                location = found.get(rank, RankLocation(rank, node))
                known = location.gpu or location.uuid or location.gpu_unknown
                gpu = "" if known else frame.gpu(column)
                if gpu:
                    location = replace(location, gpu=gpu, by_local_rank=True)
                found[rank] = replace(location, node=location.node or node)
        return found


def rank_locations(observed: Observed) -> RankLocations:
    """Combine series about ranks with those about their GPUs and adapters."""
    nics = _nics(observed)
    jobs: dict[str, dict[int, RankLocation]] = defaultdict(dict)
    infos: dict[str, list[Series]] = defaultdict(list)
    for series in observed.of(training.RANK_INFO):
        infos[series.labels.get("job_id", "")].append(series)
    for job, several in infos.items():
        held = of_ranks(observed, job, several)
        jobs[job] = {rank: _location(rank, one) for rank, one in held.items()}
    _add_devices(observed, jobs, nics)
    for series in observed.of(pods.GPU_ALLOCATION_INFO):
        rank = rank_number(series.labels.get("rank", ""))
        members = jobs[series.labels.get("job_id", "")]
        if rank is not None and rank not in members:
            members[rank] = _allocated(rank, series, nics)
    return RankLocations({job: dict(sorted(ranks.items())) for job, ranks in jobs.items() if job})


def _location(rank: int, series: Series) -> RankLocation:
    labels = series.labels
    pod = f"{labels.get('pod_namespace', '')}/{labels.get('pod_name', '')}"
    return RankLocation(
        rank=rank,
        # The agent's node name: outside of pods a ring may name the host differently.
        node=series.node or labels.get("node", ""),
        local_rank=rank_number(labels.get("local_rank", "")),
        uuid=labels.get("uuid", "").partition("::")[0],
        pod="" if pod == "/" else pod,
        pod_uid=labels.get("pod_uid", ""),
    )


def _add_devices(
    observed: Observed, jobs: Mapping[str, dict[int, RankLocation]], nics: _Nics
) -> None:
    """Add to the ranks of jobs the GPUs that no agent names, and what belongs to GPUs."""
    assumed = assumed_gpus.assumed_gpus(observed, jobs)
    indices, parents = _indices(observed), _parents(observed)
    for job, ranks in jobs.items():
        for rank, one in ranks.items():
            guess = assumed.get((job, rank))
            uuid = one.uuid or guess or ""
            parent = parents.get((one.node, uuid), "")
            ranks[rank] = replace(
                one,
                gpu=indices.get((one.node, parent or uuid), ""),
                uuid=uuid,
                nics=nics.get((one.node, parent or uuid), ()),
                by_local_rank=bool(guess),
                parent_uuid=parent,
                gpu_unknown=_gpu_unknown(uuid, parent, guess),
            )


def _gpu_unknown(uuid: str, parent: str, assumed: str | None) -> GpuUnknown:
    if uuid.startswith(PARTITION) and not parent:
        return "partition"
    return "contested" if assumed == "" else ""


def _parents(observed: Observed) -> Mapping[tuple[str, str], str]:
    """Return the UUIDs of the GPUs that MIG devices are parts of, by node and the device's UUID."""
    return {
        (series.node, series.labels.get("mig_uuid", "")): series.labels.get("uuid", "")
        for series in observed.of(gpus.MIG_INFO)
    }


def _indices(observed: Observed) -> Mapping[tuple[str, str], str]:
    """Return the indices of GPUs by node and UUID."""
    return {
        (series.node, series.labels.get("uuid", "")): series.labels.get("gpu", "")
        for series in observed.of(gpus.GPU_INFO)
    }


def _allocated(rank: int, series: Series, nics: _Nics) -> RankLocation:
    labels = series.labels
    node, uuid = series.node or labels.get("node", ""), labels.get("uuid", "").partition("::")[0]
    return RankLocation(
        rank=rank,
        node=node,
        gpu=labels.get("gpu", ""),
        uuid=uuid,
        nics=nics.get((node, uuid), ()),
        pod=f"{labels.get('pod_namespace', '')}/{labels.get('pod_name', '')}",
    )


def by_rank(observed: Observed, metric: Metric, job_id: str) -> Mapping[int, Series]:
    """Return a job's series by rank, of the nodes that have the ranks now.

    Labels that are not rank numbers are left out.
    """
    return of_ranks(observed, job_id, observed.of(metric, job_id=job_id))


def of_ranks(observed: Observed, job_id: str, found: Iterable[Series]) -> Mapping[int, Series]:
    """Return one of a job's series for each rank, of the node that has the rank now.

    Of several series of that node it is the last one.
    """
    numbered: dict[int, list[Series]] = defaultdict(list)
    for series in found:
        rank = rank_number(series.labels.get("rank", ""))
        if rank is not None:
            numbered[rank].append(series)
    return rank_holders.of_holders(observed, job_id, numbered)


def _nics(observed: Observed) -> _Nics:
    found: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for series in observed.of(topology.GPU_NIC_INFO):
        distance = series.labels.get("distance", "")
        far = DISTANCES.index(distance) if distance in DISTANCES else len(DISTANCES)
        device = series.labels.get("device", "")
        if device:
            found[series.node, series.labels.get("uuid", "")].append((far, device))
    return {key: tuple(name for _, name in sorted(several)) for key, several in found.items()}


def rank_number(text: str) -> int | None:
    """Return the number in a label, None if it is not a rank number."""
    if text.isascii() and text.isdigit() and len(text) < 8 and int(text) < MAXIMUM_RANKS:
        return int(text)
    return None
