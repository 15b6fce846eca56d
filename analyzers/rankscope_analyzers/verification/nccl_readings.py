"""What NCCL logged at its start, pod by pod from agents' pages, or from log files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.metrics import nccl_log
from rankscope_agent.contract.model import Metric
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_analyzers.intake.observed import Observed, Series, in_force
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.nccl_transport import EXPECTED

READS: tuple[Metric, ...] = (
    nccl_log.NCCL_SOCKET_FALLBACK,
    nccl_log.NCCL_NET_INFO,
    nccl_log.NCCL_GDR_MISSING,
    nccl_log.NCCL_RANKS_EXPECTED,
    nccl_log.NCCL_RANKS_INITIALIZED,
)


@dataclass(frozen=True, slots=True)
class NcclReading:
    """NCCL's start in one pod, or in the given logs.

    Args:
        source: the pod or the log.
        ranks: whose log it is.
        fallback: True if data between nodes goes over sockets; None if unknown.
        reason: why, one of the parser's reasons, or `expected` without any RDMA port that is up.
        network: what NCCL selected, empty if unknown.
        without_gpudirect: connections over RDMA without GPUDirect.
        begun: initialisations of ranks that began.
        completed: those that ended.
        channels: numbers of channels of the largest communicators, one in a sound job.
    """

    source: str
    ranks: frozenset[int]
    fallback: bool | None
    reason: str
    network: str
    without_gpudirect: int
    begun: int
    completed: int
    channels: frozenset[int]


def of_series(observed: Observed, view: JobView) -> Iterator[NcclReading]:
    """Yield NCCL's start in each pod of a job from its agent's page."""
    for series in in_force(observed.of(nccl_log.NCCL_SOCKET_FALLBACK), "reason"):
        where = view.of_pod(series)
        if where is None:
            continue
        pod = observed.on((series.node,))
        labels = {name: series.labels.get(name, "") for name in nccl_log.LOG_POD}
        name = "/".join(filter(None, labels.values()))
        ranks = where.ranks or [one.rank for one in view.on_node.get(series.node, ())]
        yield NcclReading(
            source=f"pod {name}" if name else f"node {series.node}",
            ranks=frozenset(ranks),
            fallback={1.0: True, 0.0: False}.get(series.last),
            reason=series.labels.get("reason", ""),
            network=_network(pod.of(nccl_log.NCCL_NET_INFO, **labels)),
            without_gpudirect=_sum(pod.of(nccl_log.NCCL_GDR_MISSING, **labels)),
            begun=_sum(pod.of(nccl_log.NCCL_RANKS_EXPECTED, **labels)),
            completed=_sum(pod.of(nccl_log.NCCL_RANKS_INITIALIZED, **labels)),
            channels=frozenset(int(one.last) for one in pod.of(nccl_log.NCCL_CHANNELS, **labels)),
        )


def of_logs(facts: Facts, names: Sequence[str], *, rdma: bool) -> NcclReading:
    """Return NCCL's start in a job's logs.

    Args:
        facts: of all of them, combined.
        names: of the files.
        rdma: True if a node of the job has an RDMA port that is up, or none of them is known.
    """
    verdict = judge(facts)
    members = [member for one in verdict.communicators for member in one.communicator.members]
    largest = max((one.communicator.nranks or 0 for one in verdict.communicators), default=0)
    channels = {
        number
        for one in verdict.communicators
        if (one.communicator.nranks or 0) == largest
        for number in one.communicator.channels
    }
    sockets = verdict.network.socket_fallback
    return NcclReading(
        source=", ".join(names),
        ranks=frozenset(verdict.ranks_seen),
        fallback=sockets,
        reason=EXPECTED if sockets and not rdma else verdict.network.reason,
        network=verdict.net_selected or "",
        without_gpudirect=verdict.network.gdr_missing,
        begun=sum(member.started or member.complete for member in members),
        completed=sum(member.complete for member in members),
        channels=frozenset(channels),
    )


def _network(found: Iterator[Series]) -> str:
    newest = in_force(found, "net", "plugin", "version", "pod_uid")
    name = next((series.labels.get("net", "") for series in newest), "")
    return "" if name == "unknown" else name


def _sum(found: Iterator[Series]) -> int:
    return int(sum(series.last for series in found))
