"""GPU samples as a frame, the input of `throttle`, and its construction from agents' pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import pandas as pd

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.metrics.pods import GPU_ALLOCATION_INFO
from rankscope_agent.contract.metrics.training import RANK_INFO
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.intake.series_table import Thing, table

GPU_COLUMNS: tuple[str, ...] = (
    "time",
    "node",
    "gpu",
    "uuid",
    "pci",
    "model",
    "job_id",
    "utilization_ratio",
    "sm_clock_hertz",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
    "sw_power_cap_seconds",
    "sw_thermal_slowdown_seconds",
    "hw_thermal_slowdown_seconds",
    "hw_power_brake_seconds",
    "sw_power_cap_active",
    "sw_thermal_slowdown_active",
    "hw_thermal_slowdown_active",
    "hw_power_brake_active",
)
"""Columns of the frame of GPU samples; one row is one GPU at one time.

`time` is Unix seconds; node, gpu, uuid, pci, model and job_id are texts, empty if unknown; the
others are floats, NaN if the GPU does not report them. Columns of seconds are counters since the
driver was loaded: how long the clock was reduced for that reason; those of `active` are 1 if it is
at that moment, else 0.
"""

THING = ("node", "gpu", "uuid", "pci", "model", "job_id")

_REASONS = ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")

VALUES: Mapping[str, tuple[Metric, tuple[str, ...]]] = {
    "utilization_ratio": (metrics.GPU_UTILIZATION, ()),
    "sm_clock_hertz": (metrics.GPU_CLOCK, ("sm",)),
    "power_watts": (metrics.GPU_POWER, ()),
    "power_limit_watts": (metrics.GPU_POWER_LIMIT, ("enforced",)),
    "temperature_celsius": (metrics.GPU_TEMPERATURE, ("core",)),
    **{f"{at}_seconds": (metrics.GPU_CLOCK_EVENT_SECONDS, (at,)) for at in _REASONS},
    **{f"{at}_active": (metrics.GPU_CLOCK_EVENT, (at,)) for at in _REASONS},
}
"""The series that each numeric column comes from, and its labels beyond those of the GPU."""

READS: tuple[Metric, ...] = (
    *dict.fromkeys(metric for metric, _ in VALUES.values()),
    metrics.GPU_INFO,
    GPU_ALLOCATION_INFO,
    RANK_INFO,
)
"""All series that the frame is made of."""


def of_pages(pages: Iterable[Page]) -> pd.DataFrame:
    """Return the frame of GPUs on agents' pages; without GPUs it is empty."""
    return of_observed(from_pages(pages, READS))


def nodes_of_job(pages: Iterable[Page], job_id: str) -> set[str]:
    """Return the nodes on which a job has ranks or GPUs, according to agents' pages."""
    seen = from_pages(pages, (RANK_INFO, GPU_ALLOCATION_INFO))
    return {one.node for one in seen.all() if one.labels.get("job_id") == job_id}


def of_observed(observed: Observed) -> pd.DataFrame:
    """Return the frame of the observed GPUs; without GPUs it is empty."""
    models = _by_uuid(observed, metrics.GPU_INFO, "model")
    jobs = _jobs(observed)
    frame = table(_cells(observed, models, jobs), THING, "time")
    return frame.reindex(columns=list(GPU_COLUMNS))


def _cells(
    observed: Observed, models: Mapping[str, str], jobs: Mapping[str, str]
) -> Iterator[tuple[Thing, str, Series]]:
    for metric in dict.fromkeys(metric for metric, _ in VALUES.values()):
        columns = {extra: column for column, (one, extra) in VALUES.items() if one is metric}
        beyond = metric.labels[3:]
        for series in observed.of(metric):
            labels = series.labels
            column = columns.get(tuple(labels.get(name, "") for name in beyond))
            if column is not None:
                gpu, uuid, pci = (labels.get(name, "") for name in ("gpu", "uuid", "pci"))
                thing = (series.node, gpu, uuid, pci, models.get(uuid, ""), jobs.get(uuid, ""))
                yield thing, column, series


def _jobs(observed: Observed) -> dict[str, str]:
    """Return the job of each GPU: by its allocation, by its rank, or its node's only job.

    If GPUs are not allocated individually, a node belongs to a job if all its ranks are that job's
    and there are as many ranks as GPUs.
    """
    by_rank = _by_uuid(observed, RANK_INFO, "job_id")
    jobs = by_rank | _by_uuid(observed, GPU_ALLOCATION_INFO, "job_id")
    known = {uuid: job for uuid, job in jobs.items() if uuid and job}
    reporting_nodes, gpus, ranks = set(), defaultdict(set), defaultdict(list)
    for series in observed.of(metrics.GPU_INFO):
        uuid = series.labels.get("uuid", "")
        gpus[series.node].add(uuid)
        reporting_nodes |= {series.node} if uuid in known else set()
    for series in observed.of(RANK_INFO):
        ranks[series.node].append(series.labels.get("job_id", ""))
    for node in set(gpus) - reporting_nodes:
        if len(set(ranks[node])) == 1 and len(ranks[node]) == len(gpus[node]):
            known |= dict.fromkeys(gpus[node], ranks[node][0])
    return known


def _by_uuid(observed: Observed, metric: Metric, label: str) -> dict[str, str]:
    """Return a label by the GPU's uuid; a shared GPU's has a replica number."""
    return {
        series.labels.get("uuid", "").partition("::")[0]: series.labels.get(label, "")
        for series in observed.of(metric)
    }
