"""Jobs whose NCCL uses sockets, lacks GPUDirect, has errors, or does not come up."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_agent.contract.metrics import nccl_log as metrics
from rankscope_agent.contract.metrics import nccl_ras, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series, in_force
from rankscope_analyzers.layers import other_jobs
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.log_failures import NEWS_SECONDS, WENT_ON_SECONDS
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.logs.nccl_findings import REASON_TEXTS
from rankscope_analyzers.text.name_lists import listed

Placed = tuple[Series, Where]
"""A series of a pod and the ranks of that pod."""

Pod = tuple[str, str, str]
"""Node, namespace and name; the latter two are empty outside of pods."""

EXPECTED = "expected"
"""Reason of a job on sockets where neither pod nor node has an RDMA port that is up."""

NORMAL_LAG = 1.0
"""Ranks do not launch collectives at the same moment, so that some are one ahead."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a series of NCCL's logs means if it is not zero.

    Gauges are about the processes that run now; counters keep what earlier attempts met.

    Args:
        phrase: about the job, with {value} and labels of the series filled in.
    """

    metric: Metric
    phrase: str
    kind: str


TIMEOUT = "collective_timeout"

PROBLEMS: Sequence[Problem] = (
    Problem(
        metrics.NCCL_GDR_MISSING,
        "NCCL moves data of {value:.0f} connections over RDMA without GPUDirect",
        "gdr_missing",
    ),
    Problem(
        metrics.NCCL_IB_ERRORS,
        "NCCL met {value:.0f} InfiniBand errors ({status}) on {device}",
        "ib_errors",
    ),
    Problem(
        metrics.NCCL_TIMEOUTS,
        "PyTorch's watchdog gave up on {value:.0f} {op} operations",
        TIMEOUT,
    ),
)

SOCKET, INIT, MISSING, LAG = "socket_fallback", "init_incomplete", "ras_missing", "ras_lag"
CHANNELS = "channels_differ"
KINDS = frozenset((SOCKET, INIT, MISSING, LAG, CHANNELS, *(problem.kind for problem in PROBLEMS)))

READS: tuple[Metric, ...] = (
    metrics.NCCL_SOCKET_FALLBACK,
    *(problem.metric for problem in PROBLEMS),
    metrics.NCCL_RANKS_EXPECTED,
    metrics.NCCL_RANKS_INITIALIZED,
    metrics.NCCL_CHANNELS,
    metrics.NCCL_LAST_LINE,
    metrics.NCCL_LAST_WARNING,
    nccl_ras.RAS_MISSING_RANKS,
    nccl_ras.RAS_LAG,
    nccl_ras.RAS_LAGGING_RANK,
)
"""Without the series of ranks, which `endings` reads: they do not show that NCCL was observed."""

INIT_TIMEOUT_SECONDS = 60.0
"""Communicators of thousands of ranks take some 20 s to initialize; an initialization that has not
ended after a minute without a log line hangs."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield problems in NCCL's logs and RAS, one finding for all pods of the job."""
    yield from _socket(observed, job)
    for problem in PROBLEMS:
        yield from _problem_findings(observed, job, problem)
    yield from _init(observed, job)
    yield from _channels(observed, job)
    yield from _ras(observed, job)


def _socket(observed: Observed, job: JobView) -> Iterator[Finding]:
    found: dict[str, list[Placed]] = defaultdict(list)
    for series in in_force(observed.of(metrics.NCCL_SOCKET_FALLBACK), "reason"):
        where, reason = job.of_pod(series), series.labels.get("reason", "")
        if where and series.last == 1 and reason != EXPECTED:
            found[reason].append((series, where))
    for reason, several in found.items():
        why = REASON_TEXTS.get(reason, reason.replace("_", " "))
        sentence = f"NCCL carries data between nodes over TCP sockets: {why}"
        yield _together(SOCKET, job, several, sentence)


def _problem_findings(observed: Observed, job: JobView, problem: Problem) -> Iterator[Finding]:
    extra = [name for name in problem.metric.labels if name not in metrics.LOG_POD]
    counts = problem.metric.kind == "counter"
    began = other_jobs.first_starts(observed, job.job_id) if counts else {}
    for key, placed in _problems(observed, job, problem.metric, extra).items():
        happened = _happened(observed, placed)
        several = [one for one in placed if not _of_earlier_job(one, happened, began)]
        if not several:
            continue
        named = dict(zip(extra, key, strict=True))
        sentence = problem.phrase.format(value=_total(several), **named)
        finding = _together(problem.kind, job, several, sentence, named.get("device", ""))
        # A rank that gives up on a collective waited in it, so that is no evidence against its
        # ranks.
        where = Where() if problem.kind == TIMEOUT else finding.where
        newest = max(happened.values(), default=None)
        finding = replace(finding, where=where, since_unix_seconds=newest)
        if not counts or not _went_on(observed, job, several, happened):
            yield finding
        elif newest is not None and _read_at(several) - newest < NEWS_SECONDS:
            yield replace(finding, until_unix_seconds=newest)


def _problems(
    observed: Observed, job: JobView, metric: Metric, extra: Sequence[str]
) -> Mapping[tuple[str, ...], list[Placed]]:
    """Return the job's series of a metric that are not zero, by these labels."""
    found: dict[tuple[str, ...], list[Placed]] = defaultdict(list)
    warned = _warned(observed) if metric.kind == "counter" else {}
    for series in observed.of(metric):
        where = job.of_pod(series, _grew(series, warned))
        if where and series.last > 0:
            found[tuple(series.labels.get(name, "") for name in extra)].append((series, where))
    return found


def _read_at(several: Sequence[Placed]) -> float:
    return max(float(series.times[-1]) for series, _ in several)


def _happened(observed: Observed, several: Sequence[Placed]) -> Mapping[Pod, float]:
    """Return the latest time at which the counter of each pod may have grown, in Unix seconds."""
    warned = _warned(observed)
    times = {_pod(series): _grew(series, warned) for series, _ in several}
    return {pod: at for pod, at in times.items() if at is not None}


def _warned(observed: Observed) -> Mapping[Pod, float]:
    return {_pod(series): series.last for series in observed.of(metrics.NCCL_LAST_WARNING)}


def _grew(series: Series, warned: Mapping[Pod, float]) -> float | None:
    """Return the latest time at which a counter may have grown, None if it is unknown.

    That is when its pod's newest warning of any kind was read, or the first of the pages that show
    the counter as it is now.
    """
    at = warned.get(_pod(series))
    return None if at is None else min(at, series.held_since() or float(series.times[0]))


def _of_earlier_job(
    placed: Placed, happened: Mapping[Pod, float], began: Mapping[str, float]
) -> bool:
    """Return True if what happened outside of pods did so before the job began on the node."""
    series, where = placed
    return not where.ranks and happened.get(_pod(series), math.inf) < began.get(series.node, 0.0)


def _went_on(
    observed: Observed, job: JobView, several: Sequence[Placed], happened: Mapping[Pod, float]
) -> bool:
    """Return True if every pod has ended a step that began clearly after what happened.

    Ranks that do not depend on the broken communicator end the step that they are in.
    """
    ended = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id)
    took = by_rank(observed, training.LAST_STEP_SECONDS, job.job_id)
    began = {
        rank: series.last - (took[rank].last if rank in took else 0.0)
        for rank, series in ended.items()
    }

    def goes_on(series: Series, where: Where) -> bool:
        ranks = where.ranks or [one.rank for one in job.on_node.get(series.node, ())]
        newest = max((began[rank] for rank in ranks if rank in began), default=0.0)
        return newest > happened.get(_pod(series), newest) + WENT_ON_SECONDS

    return all(goes_on(series, where) for series, where in several)


def _init(observed: Observed, job: JobView) -> Iterator[Finding]:
    ended = {_pod(series): series.last for series in observed.of(metrics.NCCL_RANKS_INITIALIZED)}
    quiet = {
        _pod(series): float(series.times[-1]) - series.last
        for series in observed.of(metrics.NCCL_LAST_LINE)
    }
    several = [
        (series, where)
        for series in observed.of(metrics.NCCL_RANKS_EXPECTED)
        if (where := job.of_pod(series))
        and ended.get(_pod(series), 0.0) < series.last
        and quiet.get(_pod(series), 0.0) > INIT_TIMEOUT_SECONDS
    ]
    if several:
        missing = sum(series.last - ended.get(_pod(series), 0.0) for series, _ in several)
        yield _together(INIT, job, several, f"NCCL's start has not ended on {missing:.0f} ranks")


def _channels(observed: Observed, job: JobView) -> Iterator[Finding]:
    several = [
        (series, where)
        for series in observed.of(metrics.NCCL_CHANNELS)
        if (where := job.of_pod(series))
    ]
    numbers = Counter(series.last for series, _ in several)
    if len(numbers) > 1:
        (usual, _), *_ = numbers.most_common(1)
        odd = [(series, where) for series, where in several if series.last != usual]
        seen = listed(sorted({f"{series.last:.0f}" for series, _ in odd}))
        yield _together(CHANNELS, job, odd, f"ranks have {seen} channels, most have {usual:.0f}")


def _ras(observed: Observed, job: JobView) -> Iterator[Finding]:
    own = other_jobs.alone(observed, job.job_id)
    for series in own.of(nccl_ras.RAS_MISSING_RANKS):
        if series.node in job.on_node and series.last > 0:
            sentence = f"NCCL's RAS misses {series.last:.0f} ranks"
            yield _together(MISSING, job, [(series, Where())], sentence)
    for series in own.of(nccl_ras.RAS_LAG):
        if series.node in job.on_node and series.last > NORMAL_LAG:
            op = series.labels.get("op", "")
            sentence = f"a rank is {series.last:.0f} {op} operations behind by NCCL's RAS"
            yield _together(LAG, job, [(series, Where())], sentence)


def _pod(series: Series) -> Pod:
    labels = series.labels
    return series.node, labels.get("pod_namespace", ""), labels.get("pod_name", "")


def _total(several: Sequence[Placed]) -> float:
    return sum(series.last for series, _ in several)


def _together(
    kind: str, job: JobView, several: Sequence[Placed], sentence: str, device: str = ""
) -> Finding:
    """Combine several pods into one finding, since the first of them."""
    evidence = Evidence(several[0][0].name, _total(several), 0.0, "count", sentence)
    starts = [start for series, _ in several if (start := series.held_since()) is not None]
    where = _where(several, job, (device,) if device else ())
    since = min(starts, default=None)
    return series_finding(kind, "nccl", job.job_id, where, sentence, (evidence,), since)


def _where(several: Sequence[Placed], job: JobView, devices: tuple[str, ...]) -> Where:
    """Return the pods' ranks and nodes; the whole job if these are all of it."""
    ranks = sorted({rank for _, where in several for rank in where.ranks})
    nodes = sorted({node for _, where in several for node in where.nodes})
    whole = set(ranks) == set(job.locations) or (not ranks and set(nodes) == job.nodes)
    if whole and not devices:
        return Where()
    return Where(nodes=tuple(nodes), ranks=() if devices else tuple(ranks), devices=devices)
