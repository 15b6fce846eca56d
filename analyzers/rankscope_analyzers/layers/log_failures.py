"""Which rank of a job failed first, over all nodes, and why: from the logs that agents follow.

Each agent reports the earliest failure in its own node's logs. Here the nodes are compared: a rank
that only lost its peers is a victim, and of the others the earliest was the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.metrics import job_logs, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.advice import OWNERS_OF_CAUSES
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.node_clocks import READS as CLOCK_READS
from rankscope_analyzers.layers.node_clocks import node_clocks
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.name_lists import named
from rankscope_analyzers.text.wording import clock

READS: tuple[Metric, ...] = (job_logs.JOB_LOG_FAILURE, *CLOCK_READS)

FAILED = "attempt_failed"
KINDS = frozenset((FAILED,))

NEWS_SECONDS = 3600.0
"""A failure longer ago is over: the job has gone on since, or its pods are gone."""

ATTEMPT_SECONDS = 120.0
"""Failures this close to the newest belong to its attempt; agents group those of one node by the
same time (sources/nccl_log/job_failures.py)."""

WENT_ON_SECONDS = 10.0
"""Steps that end this long after the failure belong to a new attempt, or to ranks that continue
without the failed one: what was under way ends before."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the failure of the job's newest failed attempt."""
    news = [
        series
        for series in observed.of(job_logs.JOB_LOG_FAILURE, job_id=job.job_id)
        if float(series.times[-1]) - series.last < NEWS_SECONDS
    ]
    if not news:
        return
    steps = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id).values()
    clocks = node_clocks(observed, job.job_id, {one.node for one in (*news, *steps)})
    news = [replace(one, values=one.values - clocks.ahead.get(one.node, 0.0)) for one in news]
    newest = max(series.last for series in news)
    attempt = [series for series in news if newest - series.last < ATTEMPT_SECONDS]
    first = min(attempt, key=_order)
    others = tuple(sorted({series.node for series in attempt} - {first.node}))
    went_on = any(clocks.corrected(one.node, one.last) > newest + WENT_ON_SECONDS for one in steps)
    sentence = _sentence(first, others, went_on=went_on)
    rank = first.labels.get("rank", "")
    where = Where(nodes=(first.node,), ranks=(int(rank),) if rank.isdecimal() else ())
    evidence = Evidence(first.name, first.last, 0.0, "unix seconds", sentence)
    found = series_finding(FAILED, "log", job.job_id, where, sentence, (evidence,), first.last)
    cause = first.labels.get("cause", causes.UNKNOWN)
    action = causes.ACTIONS.get(cause, found.action)
    owner = OWNERS_OF_CAUSES.get(cause, found.owner)
    until = newest if went_on else None
    yield replace(found, action=action, owner=owner, until_unix_seconds=until)


def _order(series: Series) -> tuple[bool, bool, float]:
    """Sort key of failures of one attempt: failed by itself, reason known, early."""
    labels = series.labels
    return labels.get("own") != "true", labels.get("cause") == causes.UNKNOWN, series.last


def _sentence(first: Series, others: tuple[str, ...], *, went_on: bool) -> str:
    labels = first.labels
    cause = labels.get("cause", causes.UNKNOWN)
    what = causes.CAUSES.get(cause, causes.CAUSES[causes.UNKNOWN])
    at = clock(first.last)
    if labels.get("own") != "true":
        sentence = f"ranks on node {first.node} failed at {at} for others that went away: {what}"
    elif rank := labels.get("rank", ""):
        sentence = f"rank {rank} (node {first.node}) failed first, at {at}: {what}"
    else:
        sentence = f"a rank on node {first.node} failed first, at {at}: {what}"
    if others:
        sentence += f"; {named(others, 'node')} followed"
    return sentence + (", and the job has gone on since" if went_on else "")
