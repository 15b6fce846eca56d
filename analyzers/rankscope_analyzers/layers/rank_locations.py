"""Where the ranks of jobs run, from all sources: records, rank series, GPUs and adapters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rankscope_agent.contract.metrics import gpus, pods, topology, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import rank_holders
from rankscope_analyzers.steps.frames import StepFrame

READS: tuple[Metric, ...] = (
    training.RANK_INFO,
    *rank_holders.READS,
    gpus.GPU_INFO,
    pods.GPU_ALLOCATION_INFO,
    pods.JOB_INFO,
    topology.GPU_NIC_INFO,
)

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Distances of an adapter from a GPU, the nearest first (nvidia-smi topo -m)."""

MAXIMUM_RANKS = 200_000
"""Ten times the largest existing jobs; a larger rank is invalid."""


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
                gpu = "" if location.gpu or location.uuid else frame.gpu(column)
                if gpu:
                    location = replace(location, gpu=gpu, by_local_rank=True)
                found[rank] = replace(location, node=location.node or node)
        return found


def rank_locations(observed: Observed) -> RankLocations:
    """Combine series about ranks with those about their GPUs and adapters."""
    gpus = _gpus(observed)
    nics = _nics(observed)
    jobs: dict[str, dict[int, RankLocation]] = defaultdict(dict)
    infos: dict[str, list[Series]] = defaultdict(list)
    for series in observed.of(training.RANK_INFO):
        infos[series.labels.get("job_id", "")].append(series)
    for job, several in infos.items():
        held = of_ranks(observed, job, several)
        jobs[job] = {rank: _location(rank, one, gpus, nics) for rank, one in held.items()}
    for series in observed.of(pods.GPU_ALLOCATION_INFO):
        rank = rank_number(series.labels.get("rank", ""))
        members = jobs[series.labels.get("job_id", "")]
        if rank is not None and rank not in members:
            members[rank] = _allocated(rank, series, nics)
    return RankLocations({job: dict(sorted(ranks.items())) for job, ranks in jobs.items() if job})


def _location(
    rank: int,
    series: Series,
    gpus: _Gpus,
    nics: Mapping[tuple[str, str], tuple[str, ...]],
) -> RankLocation:
    labels = series.labels
    # The agent's node name: outside of pods a ring may name the host differently.
    node, local = series.node or labels.get("node", ""), rank_number(labels.get("local_rank", ""))
    uuid = labels.get("uuid", "").partition("::")[0]
    guessed = not uuid and local is not None
    if guessed:  # without devices of its own, rank n of a node uses GPU n
        uuid = gpus.uuids.get((node, str(local)), "")
    pod = f"{labels.get('pod_namespace', '')}/{labels.get('pod_name', '')}"
    return RankLocation(
        rank=rank,
        node=node,
        local_rank=local,
        gpu=gpus.indices.get((node, uuid), ""),
        uuid=uuid,
        nics=nics.get((node, uuid), ()),
        pod="" if pod == "/" else pod,
        pod_uid=labels.get("pod_uid", ""),
        by_local_rank=guessed and bool(uuid),
    )


@dataclass(frozen=True, slots=True)
class _Gpus:
    """The GPUs of nodes: their indices by UUID, and the other way round."""

    indices: Mapping[tuple[str, str], str]
    uuids: Mapping[tuple[str, str], str]


def _gpus(observed: Observed) -> _Gpus:
    indices = {
        (series.node, series.labels.get("uuid", "")): series.labels.get("gpu", "")
        for series in observed.of(gpus.GPU_INFO)
    }
    return _Gpus(indices, {(node, index): uuid for (node, uuid), index in indices.items()})


def _allocated(
    rank: int, series: Series, nics: Mapping[tuple[str, str], tuple[str, ...]]
) -> RankLocation:
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


def _nics(observed: Observed) -> Mapping[tuple[str, str], tuple[str, ...]]:
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
