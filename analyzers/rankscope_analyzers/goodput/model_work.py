"""How much a job computes compared with what its GPUs could: model FLOPs utilisation (MFU). Pure.

MFU is what the model requires divided by what the GPUs could do in that time, whatever they really
do (arXiv:2204.02311, appendix B). A token requires what the program reports, else 6 FLOPs per
parameter (arXiv:2001.08361, section 2.1), without attention. If that is unknown, the MFU in the
job's log counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.contract.metrics import job_logs, job_work, summary, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.goodput.peak_flops import peak
from rankscope_analyzers.intake.observed import Observed, Series

FLOPS_PER_PARAMETER = 6.0
"""Of one token: 2 forward, 4 backward."""

FRESH_SECONDS = 120.0
"""An older page shows nothing about now: two of the longest scrape intervals in use for
training."""

OF_JOBS: tuple[Metric, ...] = (
    job_work.JOB_TOKENS,
    job_work.JOB_EPOCHS,
    job_work.JOB_PARAMETERS,
    job_work.JOB_MODEL_FLOPS,
    job_work.JOB_NUMBERS_INFO,
    training.JOB_SAMPLES,
    training.RANK_INFO,
)
OF_PODS: tuple[Metric, ...] = (job_logs.JOB_LOG_GPU_FLOPS, job_logs.JOB_LOG_TOKENS_RATE)
READS: tuple[Metric, ...] = (*OF_JOBS, *OF_PODS, summary.POD_JOB_INFO)

By = Literal["program", "parameters", "log"]
"""Sources of the FLOPs per token."""

OfJob = Mapping[str, Sequence[Series]]
"""Series of one job, by the name of their metric."""


@dataclass(frozen=True, slots=True)
class Work:
    """How much a job computes.

    Args:
        flops: per second, of all its GPUs.
        by: source of the FLOPs per token or sample.
        peak: what its GPUs could do per second, None if unknown.
        dtype: of the peak, empty if unknown.
    """

    flops: float
    by: By
    peak: float | None = None
    dtype: str = ""

    @property
    def mfu(self) -> float | None:
        """Return the fraction of what its GPUs could do."""
        return None if self.peak is None else self.flops / self.peak


def by_job(observed: Observed) -> Mapping[str, OfJob]:
    """Return the series of each job that show how much it computes."""
    found: dict[str, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for metric in OF_JOBS:
        for one in observed.of(metric):
            found[one.labels.get("job_id", "")][metric.name].append(one)
    jobs = {_pod(one): one.labels.get("job_id", "") for one in observed.of(summary.POD_JOB_INFO)}
    for metric in OF_PODS:
        for one in observed.of(metric):
            if _pod(one) in jobs:
                found[jobs[_pod(one)]][metric.name].append(one)
    return found


def work(series: OfJob, models: Sequence[str], gpus: int, now: float) -> Work | None:
    """Return how much a job computes now, None if unknown.

    Args:
        series: of the job.
        models: of the GPU of each of its ranks, empty if unknown.
        gpus: that the job holds; at least the number of ranks.
        now: Unix time.
    """
    fresh = {
        name: [one for one in several if now - one.times[-1] <= FRESH_SECONDS]
        for name, several in series.items()
    }
    found = _flops(fresh, gpus)
    if found is None:
        return None
    flops, by = found
    numbers = {one.labels.get("dtype", "") for one in fresh.get(job_work.JOB_NUMBERS_INFO.name, ())}
    peaks = [peak(one, max(numbers, default="")) for one in models]
    known = [one for one in peaks if one is not None]
    if not known or len(known) < len(peaks):
        return Work(flops, by)
    most = sum(rate for rate, _ in known) / len(known) * gpus
    return Work(flops, by, most, known[0][1])


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of a job.

    Args:
        unit: tokens or samples.
        rate: per second.
        since: Unix time from which on it was measured.
    """

    unit: str
    rate: float
    since: float


def throughput(series: OfJob) -> Throughput | None:
    """Return the throughput of a job: tokens if its program reports them, else samples."""
    for unit, metric in (("tokens", job_work.JOB_TOKENS), ("samples", training.JOB_SAMPLES)):
        counters = series.get(metric.name, ())
        rate = _rate(counters, copies(series))
        if rate is not None:
            return Throughput(unit, rate, min(float(one.times[0]) for one in counters))
    return None


def copies(series: OfJob) -> int:
    """Return how many ranks count each token of a job: those of a pipeline or tensor group."""
    groups = {one.labels.get("dp_group", "") for one in series.get(training.RANK_INFO.name, ())}
    return max(len(groups - {""}), 1)


def _flops(series: OfJob, gpus: int) -> tuple[float, By] | None:
    tokens, samples = (
        _rate(series.get(metric.name, ()), copies(series))
        for metric in (job_work.JOB_TOKENS, training.JOB_SAMPLES)
    )
    if tokens is None:
        tokens = _largest(series.get(job_logs.JOB_LOG_TOKENS_RATE.name, ()))
    by_program = {
        one.labels.get("per", ""): one.last for one in series.get(job_work.JOB_MODEL_FLOPS.name, ())
    }
    if tokens is not None and "token" in by_program:
        return tokens * by_program["token"], "program"
    if samples is not None and "sample" in by_program:
        return samples * by_program["sample"], "program"
    parameters = _parameters(series)
    if tokens is not None and parameters:
        return tokens * FLOPS_PER_PARAMETER * parameters, "parameters"
    printed = _largest(series.get(job_logs.JOB_LOG_GPU_FLOPS.name, ()))
    return None if printed is None else (printed * gpus, "log")


def _parameters(series: OfJob) -> float | None:
    """Return how many parameters a job's model has, None unless all its ranks report it."""
    parts = series.get(job_work.JOB_PARAMETERS.name, ())
    ranks = series.get(training.RANK_INFO.name, ())
    sizes = {one.labels.get("world_size", "") for one in ranks}
    whole = sizes == {str(len({one.labels.get("rank", "") for one in ranks}))}
    if not whole or {one.node for one in parts} != {one.node for one in ranks}:
        return None
    return sum(one.last for one in parts)


def _rate(counters: Sequence[Series], counted: int) -> float | None:
    rates = [one.rate() for one in counters]
    return None if not rates or any(map(math.isnan, rates)) else sum(rates) / counted


def _largest(gauges: Iterable[Series]) -> float | None:
    return max((one.last for one in gauges if one.last > 0), default=None)


def _pod(series: Series) -> tuple[str, str, str]:
    labels = series.labels
    return series.node, labels.get("pod_namespace", ""), labels.get("pod_name", "")
