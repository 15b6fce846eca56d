"""Nodes and pods whose processes wait for, or run out of, CPU, memory, disks or file servers.

Pressure alone is no fault: data loaders keep the CPUs busy on purpose. It becomes one if the node
waits more than the job's other nodes do, and `incidents` uses it only if ranks of that node are
slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rankscope_agent.contract.metrics import host as metrics
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.advice import MEMORY_EXHAUSTED
from rankscope_analyzers.findings.finding import Advice, Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.numeric.peers import peer_median

TIMES_PEERS = 2.0
"""Nodes of one job do the same work: a node that waits twice as long as the median has a local
problem."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """A share of time in which tasks waited.

    Args:
        resource: label of the series.
        least: share from which on steps can suffer.
    """

    resource: str
    least: float
    kind: str


PRESSURES: Sequence[Pressure] = (
    # Runnable tasks that wait a fifth of the time prolong whatever prepares batches or launches
    # kernels by as much.
    Pressure("cpu", 0.2, "cpu_pressure"),
    # Any steady wait for memory means that pages are reclaimed or swapped while the job runs.
    Pressure("memory", 0.05, "memory_pressure"),
    # Disks serve other pods as well, so that less than a tenth is not worth reporting.
    Pressure("io", 0.1, "io_pressure"),
)

FULL = 0.95
"""The kubelet evicts pods at 90 % of the disk (eviction-hard nodefs.available<10%), so that 95 % is
reached if no limit was set or it did not help; the same holds for pids and inodes."""

LIMITS: Sequence[tuple[Metric, str, str]] = (
    (metrics.DISK_USED, "disk space for pods is used to", "disk_full"),
    (metrics.INODES_USED, "inodes for pods are used to", "disk_full"),
    (metrics.PIDS_USED, "process numbers are used to", "pids_exhausted"),
)
"""Ratios that must not reach 1."""

THROTTLED_SHARE = 0.1
"""Fraction of the periods of 100 ms in which a pod had used up its CPU limit before the end."""

LITTLE_MEMORY = 0.03
"""The kubelet's default eviction starts at 100 MiB; reclaim slows processes well before that."""

SLOW_NFS_SECONDS = 0.05
"""Mean round trip of requests; a file server in the same data centre answers in 1 to 5 ms."""

FEWEST_REQUESTS = 20.0
"""Requests needed for a meaningful mean."""

UNCORRECTED = "uncorrected memory error"
"""The fault that EDAC's counter shows."""

KINDS = frozenset(
    (
        *(pressure.kind for pressure in PRESSURES),
        *(kind for _, _, kind in LIMITS),
        *("cpu_throttled", "shm_full", "nfs_slow", "host_memory"),
    )
)

READS: tuple[Metric, ...] = (
    metrics.PRESSURE,
    *(metric for metric, _, _ in LIMITS),
    metrics.POD_PERIODS,
    metrics.SHM_SIZE,
    metrics.SHM_USED,
    metrics.MEMORY_AVAILABLE,
    metrics.MEMORY_TOTAL,
    metrics.NFS_OPERATIONS,
    metrics.NFS_ROUND_TRIP,
    metrics.EDAC_ERRORS,
)


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what is wrong with the job's nodes and pods."""
    for pressure in PRESSURES:
        yield from _pressure(observed, job, pressure)
    for metric, what, kind in LIMITS:
        for series in observed.of(metric):
            where = job.of_node(series)
            if where and series.last >= FULL:
                sentence = f"{what} {series.last:.0%}"
                yield _finding(kind, job, where, series, sentence, (series.last, FULL, "ratio"))
    for check in (_throttled, _shm, _memory, _nfs, _events):
        yield from check(observed, job)


def _pressure(observed: Observed, job: JobView, pressure: Pressure) -> Iterator[Finding]:
    by_node = {
        series.node: series
        for series in observed.of(metrics.PRESSURE, resource=pressure.resource, kind="some")
        if series.node in job.on_node and np.isfinite(series.rate())
    }
    if len(by_node) < 2:  # a single node has no peers, and all ranks share it
        return
    shares = np.array([series.rate() for series in by_node.values()], dtype=np.float64)
    of_peers = peer_median(shares[None, :])[0]
    for (node, series), share, usual in zip(
        by_node.items(), shares.tolist(), of_peers.tolist(), strict=True
    ):
        if share >= pressure.least and share >= TIMES_PEERS * usual:
            sentence = f"tasks wait for {pressure.resource} {share:.0%} of the time"
            sentence += f", on its peers {usual:.0%}"
            values = (share, usual, "ratio")
            yield _finding(pressure.kind, job, Where(nodes=(node,)), series, sentence, values)


def _throttled(observed: Observed, job: JobView) -> Iterator[Finding]:
    periods = _by_pod(observed, metrics.POD_PERIODS, kind="all")
    for key, series in _by_pod(observed, metrics.POD_PERIODS, kind="throttled").items():
        where = job.of_pod(series)
        total = periods[key].increase() if key in periods else float("nan")
        share = series.increase() / total if total > 0 else float("nan")
        if where and share >= THROTTLED_SHARE:
            sentence = f"a pod's CPU limit holds it back in {share:.0%} of the periods"
            yield _finding(
                "cpu_throttled", job, where, series, sentence, (share, THROTTLED_SHARE, "ratio")
            )


def _shm(observed: Observed, job: JobView) -> Iterator[Finding]:
    sizes = _by_pod(observed, metrics.SHM_SIZE)
    for key, series in _by_pod(observed, metrics.SHM_USED).items():
        size = sizes[key].last if key in sizes else 0.0
        where = job.of_pod(series) if key[1] else job.of_node(series)
        if where and size > 0 and series.last / size >= FULL:
            sentence = (
                f"shared memory is used to {series.last / size:.0%} of {size / 2**20:.0f} MiB"
            )
            yield _finding("shm_full", job, where, series, sentence, (series.last, size, "bytes"))


def _memory(observed: Observed, job: JobView) -> Iterator[Finding]:
    total = {series.node: series.last for series in observed.of(metrics.MEMORY_TOTAL)}
    for series in observed.of(metrics.MEMORY_AVAILABLE):
        where, whole = job.of_node(series), total.get(series.node, 0.0)
        if where and whole > 0 and series.last / whole <= LITTLE_MEMORY:
            sentence = f"{series.last / whole:.1%} of the memory is left"
            values = (series.last, LITTLE_MEMORY * whole, "bytes")
            advice = MEMORY_EXHAUSTED
            yield _finding("memory_pressure", job, where, series, sentence, values, instead=advice)


def _nfs(observed: Observed, job: JobView) -> Iterator[Finding]:
    requests, waited = (
        _sums(observed, metric) for metric in (metrics.NFS_OPERATIONS, metrics.NFS_ROUND_TRIP)
    )
    shown = _by_pod(observed, metrics.NFS_ROUND_TRIP)
    means = {
        key: waited[key] / count
        for key, count in requests.items()
        if count >= FEWEST_REQUESTS and key in shown
    }
    for key, mean in means.items():
        where = job.of_pod(shown[key]) if key[1] else job.of_node(shown[key])
        if not where or mean < SLOW_NFS_SECONDS:
            continue
        peers = [other for name, other in means.items() if name[0] != key[0]]
        usual = _median(peers)
        if mean >= TIMES_PEERS * usual:
            sentence = f"NFS requests take {mean * 1e3:.0f} ms"
            sentence += f", on its peers {usual * 1e3:.0f} ms" if peers else ""
            yield _finding("nfs_slow", job, where, shown[key], sentence, (mean, usual, "seconds"))


def _events(observed: Observed, job: JobView) -> Iterator[Finding]:
    for series in observed.of(metrics.EDAC_ERRORS, severity="uncorrected"):
        where, errors = job.of_node(series), series.increase()
        if where and errors > 0:
            sentence = f"the node's memory had {errors:.0f} errors that could not be corrected"
            since = series.first_change()
            values = (errors, 0.0, "count")
            finding = _finding("host_memory", job, where, series, sentence, values, since)
            yield replace(finding, fault=UNCORRECTED)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 0.0


def _by_pod(observed: Observed, metric: Metric, **labels: str) -> Mapping[tuple[str, str], Series]:
    return {(s.node, s.labels.get("pod_uid", "")): s for s in observed.of(metric, **labels)}


def _sums(observed: Observed, metric: Metric) -> Mapping[tuple[str, str], float]:
    """Return the total increase of a pod's operations."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for series in observed.of(metric):
        grown = series.increase()
        found[series.node, series.labels.get("pod_uid", "")] += grown if grown > 0 else 0.0
    return found


def _finding(
    kind: str,
    job: JobView,
    where: Where,
    series: Series,
    sentence: str,
    values: tuple[float, float, str],
    since: float | None = None,
    instead: Advice | None = None,
) -> Finding:
    evidence = Evidence(series.name, *values, sentence)
    summary = f"on node {series.node} {sentence}"
    return series_finding(
        kind, "host", job.job_id, where, summary, (evidence,), since, instead=instead
    )
