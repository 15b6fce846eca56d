"""Ranks whose threads or loader workers wait for a CPU, as observed by their node.

Step times of jobs on gloo distinguish compute from waiting for a CPU themselves, so that slow
compute is no sign of it there; elsewhere waiting may be the whole reason for slow compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rankscope_agent.contract.metrics import starvation as metrics
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.numeric.peers import peer_median

LEAST_SHARE = 0.2
"""Fraction of the time: a runnable thread that waits for a fifth of it loses as much of its
work."""

TIMES_PEERS = 2.0
"""Ranks of one job do the same work: a rank that waits twice as long as the median has a local
problem."""

READS: tuple[Metric, ...] = (
    metrics.RANK_STARVED,
    metrics.LOADER_STARVED,
    training.CPU_WAIT_SECONDS,
)

RANK, WORKERS = "cpu_starved", "workers_starved"
KINDS = frozenset((RANK, WORKERS))


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the job's ranks that wait for CPUs longer than their peers."""
    accounted = _placed(observed, job, training.CPU_WAIT_SECONDS)
    for metric, kind, who in (
        (metrics.RANK_STARVED, RANK, "its process"),
        (metrics.LOADER_STARVED, WORKERS, "its loader workers"),
    ):
        placed = _placed(observed, job, metric)
        shares = np.array([series.rate() for series in placed.values()], dtype=np.float64)
        of_peers = peer_median(shares[None, :])[0]
        for (rank, series), share, usual in zip(
            placed.items(), shares.tolist(), of_peers.tolist(), strict=True
        ):
            is_known = kind == RANK and rank in accounted
            if not is_known and share >= LEAST_SHARE and share >= TIMES_PEERS * usual:
                yield _finding(kind, job, rank, series, who, share, usual)


def _placed(observed: Observed, job: JobView, metric: Metric) -> Mapping[int, Series]:
    """Return the series of the job's ranks whose location is known."""
    found = by_rank(observed, metric, job.job_id)
    return {rank: series for rank, series in found.items() if rank in job.locations}


def _finding(
    kind: str, job: JobView, rank: int, series: Series, who: str, share: float, usual: float
) -> Finding:
    sentence = f"of rank {rank} {who} waits for a CPU {share:.0%} of the time, that of its peers"
    sentence = f"{sentence} {usual:.0%}"
    evidence = Evidence(series.name, share, usual, "ratio", sentence)
    where = Where(nodes=(series.node,), ranks=(rank,))
    return series_finding(kind, "host", job.job_id, where, sentence, (evidence,))
