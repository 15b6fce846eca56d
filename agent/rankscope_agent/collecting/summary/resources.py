"""Usage of the resources whose exhaustion makes the kubelet evict pods."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.contract.metrics import host
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Sample

USED = 0.8
"""The kubelet evicts pods at 85 to 90 % of a disk by default: below this there is nothing to
report."""


def resource_samples(readings: Readings) -> Iterator[Sample]:
    """Yield the used share of each resource that is running out."""
    for resource, used in _used(readings):
        if used > USED:
            yield metrics.NODE_RESOURCE_USED.sample(used, resource=resource)


def _used(readings: Readings) -> Iterator[tuple[str, float]]:
    total = readings.values(host.MEMORY_TOTAL).get((), 0.0)
    available = readings.values(host.MEMORY_AVAILABLE).get(())
    if available is not None and total > 0:
        yield "memory", 1 - available / total
    for resource, metric in (
        ("disk", host.DISK_USED),
        ("inodes", host.INODES_USED),
        ("pids", host.PIDS_USED),
    ):
        used = [value for _, value in readings.of(metric)]
        if used:
            yield resource, max(used)
