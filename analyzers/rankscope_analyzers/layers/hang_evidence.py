"""Who holds up a hung job, from what nodes and NCCL report apart from the ranks' own states.

What happened to a GPU or a process just before the last step outranks who waits for whom. What
PyTorch's watchdogs and RAS report comes last: a rank that prints a timeout was waiting, so that the
silent ones are suspected, and of RAS's counts only one of all ranks names a rank of the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.metrics import nccl_log, nccl_ras
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import kernel_log, other_jobs, process_deaths
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.text.name_lists import named, ranks_named
from rankscope_analyzers.text.wording import clock

READS: tuple[Metric, ...] = (
    *kernel_log.READS,
    *process_deaths.READS,
    nccl_log.NCCL_TIMEOUTS,
    nccl_log.NCCL_LAST_LINE,
    nccl_log.NCCL_LAST_WARNING,
    nccl_ras.RAS_RANKS,
    nccl_ras.RAS_LAG,
    nccl_ras.RAS_LAGGING_RANK,
    nccl_ras.RAS_LAGGING_RANKS,
    nccl_ras.RAS_LAST_QUERY,
)

BEFORE_SECONDS = 120.0
"""How long before the last step a fault that stops the job may be: collectives under way end, and
steps that were launched ahead continue."""

NORMAL_LAG = 1.0
"""Ranks do not launch collectives at the same moment, so that some are one ahead."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Ranks, and why they are suspected, as a part of a sentence; empty without suspects."""

    ranks: tuple[int, ...] = ()
    why: str = ""


NOBODY = Suspects()


def by_faults(observed: Observed, job: JobView, last: float) -> Suspects:
    """Return the ranks whose GPU or process the kernel reports a fault of, the first of them.

    Args:
        observed: series of the job's nodes.
        job: the job.
        last: Unix time of the newest step.
    """
    known = [
        one
        for one in _faults(observed, job)
        if one.where.ranks
        and one.severity == "page"
        and one.since_unix_seconds is not None
        and one.since_unix_seconds >= last - BEFORE_SECONDS
        and 2 * len(one.where.ranks) <= max(2, len(job.locations))
    ]
    if not known:
        return NOBODY
    first = min(known, key=lambda one: one.since_unix_seconds or 0.0)
    why = f"{first.summary.rstrip('.')} at {clock(first.since_unix_seconds)}"
    return Suspects(tuple(first.where.ranks), f"{ranks_named(list(first.where.ranks))}: {why}")


def _faults(observed: Observed, job: JobView) -> Iterator[Finding]:
    yield from kernel_log.findings(observed, job)
    yield from process_deaths.findings(observed, job)


def by_watchdogs(observed: Observed, job: JobView, last: float) -> Suspects:
    """Return the ranks of the pods whose watchdogs are silent while most others gave up."""
    logged = {_pod(one) for one in observed.of(nccl_log.NCCL_LAST_LINE) if job.of_pod(one)}
    warned = {
        _pod(one): one.last for one in observed.of(nccl_log.NCCL_LAST_WARNING) if one.last >= last
    }
    gave_up = {
        _pod(one)
        for one in observed.of(nccl_log.NCCL_TIMEOUTS)
        if one.last > 0 and _pod(one) in warned and job.of_pod(one)
    }
    silent = logged - gave_up
    if not silent or 2 * len(gave_up) <= len(logged):
        return NOBODY
    ranks = sorted(
        place.rank for place in job.locations.values() if (place.node, place.pod) in silent
    )
    pods = named(sorted(pod for _, pod in silent), "pod")
    why = f"PyTorch's watchdogs gave up in {len(gave_up)} of {len(logged)} pods, not in {pods}"
    return Suspects(tuple(ranks), why)


def by_ras(observed: Observed, job: JobView, size: int) -> Suspects:
    """Return the rank for which RAS counts fewer launches than for all others.

    Args:
        observed: series of the job's nodes.
        job: the job.
        size: ranks of the job: in a communicator of all of them numbers are those of the job.
    """
    own = other_jobs.alone(observed, job.job_id)
    lagging, of_ranks = (
        _single(own, metric) for metric in (nccl_ras.RAS_LAGGING_RANKS, nccl_ras.RAS_RANKS)
    )
    for node, rank in _single(own, nccl_ras.RAS_LAGGING_RANK).items():
        lags = own.by_node[node].get(nccl_ras.RAS_LAG.name, ())
        worst = max(lags, key=lambda one: one.last, default=None)
        alone, whole = lagging.get(node) == 1, of_ranks.get(node) == size
        if node not in job.on_node or not alone or not whole or worst is None:
            continue
        if worst.last > NORMAL_LAG:
            why = f"{worst.last:.0f} {worst.labels.get('op', '')} operations behind the first"
            return Suspects((int(rank),), f"by NCCL's RAS rank {rank:.0f} is {why}")
    return NOBODY


def _single(observed: Observed, metric: Metric) -> Mapping[str, float]:
    """Return the value of a metric that each node has once."""
    return {one.node: one.last for one in observed.of(metric)}


def _pod(series: Series) -> tuple[str, str]:
    labels = series.labels
    return series.node, f"{labels.get('pod_namespace', '')}/{labels.get('pod_name', '')}"
