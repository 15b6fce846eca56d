"""Problems with the NCCL of the node's pods, from its logs and from the node's hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.contract.metrics import gpus, nccl_log, rdma
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Sample

Pod = tuple[str, ...]
"""Namespace and name, both empty outside of pods."""

PORT_ACTIVE = 4
"""State of a port that carries traffic, also 5: the kernel's enum ib_port_state."""

FALLBACK = "socket_fallback"
GDR_MISSING = "gdr_missing"
WAITING = "ranks_waiting"
SHARED_MEMORY = "shared_memory"
CONDITIONS = (FALLBACK, GDR_MISSING, WAITING, SHARED_MEMORY)
"""All values of the label `condition`."""


class NcclConditions:
    """Remembers the jobs of pods with a problem: while their ranks cannot be read, nobody says it.

    Else the series would be another one meanwhile, and its alert a second one.
    """

    def __init__(self) -> None:
        self._jobs: Mapping[Pod, str] = {}

    def samples(self, readings: Readings, jobs: Mapping[Pod, str]) -> Iterator[Sample]:
        """Yield what is wrong, with the pods' jobs if known.

        Args:
            readings: the samples of the collectors.
            jobs: the job of each pod.
        """
        found = list(_found(readings))
        known = {**self._jobs, **jobs}
        self._jobs = {pod: known[pod] for (pod, _, _), _ in found if pod in known}
        for (pod, condition, reason), count in found:
            labels = (self._jobs.get(pod, ""), *pod, condition, reason)
            yield Sample(metrics.POD_CONDITION, labels, count)


def _found(readings: Readings) -> Iterator[tuple[tuple[Pod, str, str], float]]:
    # Without an active port, TCP is all there is, and nothing fell back.
    if any(state >= PORT_ACTIVE for _, state in readings.of(rdma.PORT_STATE)):
        for labels, state in readings.of(nccl_log.NCCL_SOCKET_FALLBACK):
            pod, reason = labels[:-1], labels[-1]
            if state == 1 and reason != "expected":
                yield (pod, FALLBACK, reason), 1
    for pod, connections in readings.of(nccl_log.NCCL_GDR_MISSING):
        if connections > 0:
            yield (pod, GDR_MISSING, ""), connections
    begun = readings.values(nccl_log.NCCL_RANKS_EXPECTED)
    for pod, ended in readings.of(nccl_log.NCCL_RANKS_INITIALIZED):
        waiting = begun.get(pod, 0.0) - ended
        if waiting > 0:
            yield (pod, WAITING, ""), waiting
    if any(links > 0 for _, links in readings.of(gpus.GPU_NVLINKS_UP)):
        yield from _shared_memory(readings)


def _shared_memory(readings: Readings) -> Iterator[tuple[tuple[Pod, str, str], float]]:
    """Yield connections within a node through its memory if they prevail, by pod."""
    most: dict[Pod, float] = {}
    for labels, connections in readings.of(nccl_log.NCCL_CONNECTIONS):
        *of_pod, transport, _, scope = labels
        if transport == "SHM" and scope == "intra_node" and connections > 0:
            pod = tuple(of_pod)
            most[pod] = max(connections, most.get(pod, 0.0))
    for pod, connections in most.items():
        yield (pod, SHARED_MEMORY, ""), connections
