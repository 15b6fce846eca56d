"""GPU samples as a frame: what `throttle` judges, and how agents' pages become one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from rankscope_agent.metrics import gpu as metrics
from rankscope_agent.metrics.pods import GPU_ALLOCATION_INFO
from rankscope_agent.metrics.training import RANK_INFO
from rankscope_agent.model import Metric

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

`time` is Unix seconds; node, gpu, uuid, pci, model and job_id are texts, empty where unknown; the
others are floats, NaN where the GPU does not say. Columns of seconds are counters since the driver
was loaded: how long the clock was held down for that reason; those of `active` are 1 where it is at
that moment, else 0.
"""

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
"""Which series each column of numbers comes from, and its labels beyond those of the GPU."""

_LINE = re.compile(r"(rankscope_(?:gpu|rank)_[a-z0-9_]+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class AgentPage:
    """The page of one agent at one time (Unix seconds)."""

    node: str
    time: float
    text: str


def from_pages(pages: Iterable[AgentPage]) -> pd.DataFrame:
    """Return the frame of what agents' pages say about GPUs; without GPUs it is empty."""
    rows = [row for page in pages for row in _rows(page)]
    return pd.DataFrame(rows, columns=list(GPU_COLUMNS))


def _rows(page: AgentPage) -> Iterator[Mapping[str, str | float]]:
    series = list(_series(page.text))
    models = _by_uuid(series, metrics.GPU_INFO, "model")
    jobs = _jobs(series)
    gpus: dict[tuple[str, str, str], dict[str, str | float]] = {}
    wanted = {
        (metric.name, *extra): (column, metric.labels[3:])
        for column, (metric, extra) in VALUES.items()
    }
    for name, labels, value in series:
        extra = tuple(labels.get(label, "") for label in _EXTRA_LABELS.get(name, ()))
        column = wanted.get((name, *extra), ("", ()))[0]
        if column:
            key = labels.get("gpu", ""), labels.get("uuid", ""), labels.get("pci", "")
            gpus.setdefault(key, {})[column] = value
    for (gpu, uuid, pci), values in gpus.items():
        yield {
            "time": page.time,
            "node": page.node,
            "gpu": gpu,
            "uuid": uuid,
            "pci": pci,
            "model": models.get(uuid, ""),
            "job_id": jobs.get(uuid, ""),
            **values,
        }


_EXTRA_LABELS: Mapping[str, tuple[str, ...]] = {
    metric.name: metric.labels[3:] for metric, _ in VALUES.values()
}


def _jobs(series: Sequence[_Series]) -> dict[str, str]:
    """Return the job of each GPU: by who was given it, by its rank, or the node's only job.

    Where GPUs are not given out one by one, a node whose ranks are all of one job, and as many as
    it has GPUs, is that job's.
    """
    by_rank = _by_uuid(series, RANK_INFO, "job_id")
    jobs = by_rank | _by_uuid(series, GPU_ALLOCATION_INFO, "job_id")
    known = {uuid: job for uuid, job in jobs.items() if uuid and job}
    gpus = _by_uuid(series, metrics.GPU_INFO, "model")
    ranks = [labels.get("job_id", "") for name, labels, _ in series if name == RANK_INFO.name]
    if not known and len(set(ranks)) == 1 and len(ranks) == len(gpus):
        return dict.fromkeys(gpus, ranks[0])
    return known


def _by_uuid(series: Iterable[_Series], metric: Metric, label: str) -> dict[str, str]:
    """Return a label by the GPU's uuid; that of a GPU that is shared has a replica's number."""
    return {
        labels.get("uuid", "").partition("::")[0]: labels.get(label, "")
        for name, labels, _ in series
        if name == metric.name
    }


_Series = tuple[str, Mapping[str, str], float]


def _series(text: str) -> Iterator[_Series]:
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            yield match[1], dict(_LABEL.findall(match[2])), float(match[3])
