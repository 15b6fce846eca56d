"""Nodes of a job that the cluster reports as not ready, under pressure or about to go.

That explains why ranks and pods ended there, never that a rank is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankscope_agent.contract.metrics.cluster_jobs import JOB_NODE_NOTICE
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.wording import clock

READS: tuple[Metric, ...] = (JOB_NODE_NOTICE,)

LEAVING, NOT_READY, PRESSURE = "node_leaving", "node_not_ready", "node_pressure"
NOTED = "node_notice"
KINDS = frozenset((LEAVING, NOT_READY, PRESSURE, NOTED))

PHRASES: Mapping[str, tuple[str, str]] = {
    "not_ready": (NOT_READY, "is not ready"),
    "network_unavailable": (NOT_READY, "has no network"),
    "shutdown": (LEAVING, "is shut down"),
    "spot_interruption": (LEAVING, "is taken back by its cloud (spot interruption)"),
    "maintenance": (LEAVING, "has a notice of maintenance"),
    "scale_down": (LEAVING, "is removed by an autoscaler"),
    "memory_pressure": (PRESSURE, "is short of memory"),
    "disk_pressure": (PRESSURE, "is short of disk space"),
    "pid_pressure": (PRESSURE, "is short of process IDs"),
    "rebalance": (NOTED, "may be taken back soon (rebalance recommendation)"),
    "cordoned": (NOTED, "is cordoned"),
}
"""Kind and phrase for each notice."""

EXPLAINS_SECONDS = 3600.0
"""A notice that has held for longer ended nothing: the job ran on despite it."""

OVER_SECONDS = 600.0
"""A series that ended this long ago is over; sooner, a scrape or a watch's lease may be missing."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what the job's nodes report, each notice once."""
    now = job.now_unix_seconds
    if now is None:
        now = max(observed.newest().values(), default=0.0)
    for series in observed.of(JOB_NODE_NOTICE):
        of_job = series.labels.get("job_id", job.job_id) == job.job_id
        if of_job and series.labels.get("notice") in PHRASES:
            yield _finding(job, series, now)


def _finding(job: JobView, series: Series, now: float) -> Finding:
    kind, phrase = PHRASES[series.labels["notice"]]
    since = series.last if series.last > 0 else None
    last = float(series.times[-1])
    until = last if now - last > OVER_SECONDS else None
    if since is not None and last - since > EXPLAINS_SECONDS:
        kind = NOTED
    when = "since when is unknown" if since is None else f"since {clock(since)}"
    ended = "" if until is None else f" until {clock(until)}"
    sentence = f"node {series.node} {phrase}, {when}{ended}"
    by_watch = "job_id" in series.labels
    source = series.name if by_watch else f"kubectl describe node {series.node}"
    evidence = Evidence(source, since or 0.0, 0.0, "unix seconds", sentence)
    where = Where(nodes=(series.node,))
    found = series_finding(kind, "pod", job.job_id, where, sentence, (evidence,), since)
    return replace(found, until_unix_seconds=until)
