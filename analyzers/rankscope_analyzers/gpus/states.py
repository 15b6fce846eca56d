"""GPUs that are unavailable: lost, hung or missing. Pure.

They have no clock, power or temperature to compare with their peers, so that those alone would make
a node with a lost GPU look healthy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.metrics.pods import GPU_ALLOCATION_INFO
from rankscope_agent.contract.metrics.training import RANK_INFO
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.intake.page_history import Page, from_pages

State = Literal["lost", "hung", "missing"]

MEANING: Mapping[State, str] = {
    "lost": "the driver has lost it",
    "hung": "calls about it do not return",
    "missing": "a pod holds it, or it was there before, and the driver does not name it",
}

RUNBOOK = "RankscopeGpuLost"

WHOLE = "GPU-"
"""Prefix of the uuids of whole GPUs (NVML); partitions do not count as GPUs."""

READS: tuple[Metric, ...] = (
    metrics.GPU_INFO,
    metrics.GPU_LOST,
    metrics.GPU_UNRESPONSIVE,
    GPU_ALLOCATION_INFO,
    RANK_INFO,
)


@dataclass(frozen=True, slots=True)
class AbsentGpu:
    """One GPU that does no work.

    Args:
        gpu: its index, empty if it is no longer known.
        job_id: the job that holds it, empty if none is known.
    """

    state: State
    node: str
    gpu: str
    uuid: str
    job_id: str = ""

    @property
    def summary(self) -> str:
        """Return what is wrong, in one sentence."""
        which = f"GPU {self.gpu}" if self.gpu else "a GPU"
        whose = f", which job {self.job_id} holds" if self.job_id else ""
        return f"{which} of node {self.node} ({self.uuid}){whose}: {MEANING[self.state]}"


def of_pages(pages: Iterable[Page]) -> tuple[AbsentGpu, ...]:
    """Return the unavailable GPUs on the newest of these pages, by node and GPU."""
    return of_observed(from_pages(pages, READS))


def of_observed(observed: Observed) -> tuple[AbsentGpu, ...]:
    """Return the GPUs that were unavailable when last read, by node and GPU."""
    jobs = _jobs(observed)
    found: dict[tuple[str, str], AbsentGpu] = {}
    for state, series in (*_flagged(observed), *_missing(observed)):
        uuid = _uuid(series)
        gpu = series.labels.get("gpu", "")
        one = AbsentGpu(state, series.node, gpu, uuid, jobs.get(uuid, ""))
        found.setdefault((series.node, uuid or gpu), one)
    return tuple(sorted(found.values(), key=lambda one: (one.node, len(one.gpu), one.gpu)))


def _flagged(observed: Observed) -> Iterator[tuple[State, Series]]:
    newest = observed.newest()
    flags: tuple[tuple[State, Metric], ...] = (
        ("lost", metrics.GPU_LOST),
        ("hung", metrics.GPU_UNRESPONSIVE),
    )
    for state, metric in flags:
        for series in observed.of(metric):
            if series.last == 1 and series.times[-1] >= newest[series.node]:
                yield state, series


def _missing(observed: Observed) -> Iterator[tuple[State, Series]]:
    newest, there = observed.newest(), defaultdict(set)
    for series in observed.of(metrics.GPU_INFO):
        if series.times[-1] < newest[series.node]:
            yield "missing", series
        else:
            there[series.node].add(_uuid(series))
    for series in observed.of(GPU_ALLOCATION_INFO):
        known, uuid = there.get(series.node), _uuid(series)
        # If a node's agent reads no GPU at all, it is unknown which exist.
        if known and uuid.startswith(WHOLE) and uuid not in known:
            yield "missing", series


def _jobs(observed: Observed) -> dict[str, str]:
    named = (*observed.of(RANK_INFO), *observed.of(GPU_ALLOCATION_INFO))
    return {_uuid(series): job for series in named if (job := series.labels.get("job_id", ""))}


def _uuid(series: Series) -> str:
    return series.labels.get("uuid", "").partition("::")[0]
