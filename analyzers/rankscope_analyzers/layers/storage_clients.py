"""Nodes whose clients of Lustre or CephFS wait longer for one file system than others do. Pure.

A file system that is slow for all shows in the steps that wait for it; this finds a slow node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median

from rankscope_agent.contract.metrics import storage_clients as metrics
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import series_finding

READS: tuple[Metric, ...] = (metrics.OPERATIONS, metrics.SECONDS)

SLOW = "storage_client_slow"
KINDS = frozenset((SLOW,))

SLOW_SECONDS, TIMES_PEERS, FEWEST = 0.05, 2.0, 20
"""As for NFS: a fifth of a step of 250 ms, twice what other nodes wait, and enough operations for a
mean (`layers/host_pressure.py`)."""

_Key = tuple[str, str, str]
"""Type and name of a file system, and kind of operation."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the job's nodes that wait longer than others for one file system."""
    for key, means in _means(observed).items():
        for node, (mean, shown) in means.items():
            where = job.of_node(shown)
            peers = [other for name, (other, _) in means.items() if name != node]
            usual = median(peers) if peers else 0.0
            if where and mean >= SLOW_SECONDS and mean >= TIMES_PEERS * usual:
                sentence = (
                    f"{key[0]} file system {key[1]}: a {key[2]} operation takes {mean * 1e3:.0f} ms"
                )
                sentence += f", on other nodes {usual * 1e3:.0f} ms" if peers else ""
                evidence = Evidence(shown.name, mean, usual, "seconds", sentence)
                yield series_finding(SLOW, "host", job.job_id, where, sentence, (evidence,))


def _means(observed: Observed) -> Mapping[_Key, Mapping[str, tuple[float, Series]]]:
    """Return the mean time of operations in what was read, by file system and node."""
    counts = {(one.node, _key(one)): one.increase() for one in observed.of(metrics.OPERATIONS)}
    found: dict[_Key, dict[str, tuple[float, Series]]] = defaultdict(dict)
    for series in observed.of(metrics.SECONDS):
        count = counts.get((series.node, _key(series)), 0.0)
        if count >= FEWEST:
            found[_key(series)][series.node] = series.increase() / count, series
    return found


def _key(series: Series) -> _Key:
    labels = series.labels
    return labels.get("type", ""), labels.get("filesystem", ""), labels.get("operation", "")
