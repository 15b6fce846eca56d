"""How long the processes of each job took to start, combined from all its nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.metrics import job_starts
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import Observed, Series

READS: tuple[Metric, ...] = (job_starts.JOB_STARTUP, job_starts.JOB_PROCESSES_STARTED)

LAST_PHASE = "first_step"


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """A completed start of a job's processes on all its nodes.

    Args:
        earliest: Unix time of the newest process on the node that was first.
        newest: the same on the node that was last.
        phases: seconds by phase, of the slowest node.
    """

    earliest: float
    newest: float
    phases: Mapping[str, float]


def process_starts(observed: Observed) -> Mapping[str, ProcessStart]:
    """Return the newest start of each job whose ranks have all ended a step since."""
    began: dict[str, list[Series]] = defaultdict(list)
    for series in observed.of(job_starts.JOB_PROCESSES_STARTED):
        began[series.labels.get("job_id", "")].append(series)
    found = {job: _start(observed, job, nodes) for job, nodes in began.items()}
    return {job: start for job, start in found.items() if start is not None}


def _start(observed: Observed, job: str, nodes: list[Series]) -> ProcessStart | None:
    slowest: dict[str, float] = {}
    for began in nodes:
        phases = dict(_phases(observed.on((began.node,)), job, began))
        if LAST_PHASE not in phases:
            return None
        for phase, seconds in phases.items():
            slowest[phase] = max(seconds, slowest.get(phase, 0.0))
    times = [began.last for began in nodes]
    return ProcessStart(min(times), max(times), slowest)


def _phases(observed: Observed, job: str, began: Series) -> Iterator[tuple[str, float]]:
    """Yield the phases on a node's newest page; older pages are of an earlier start."""
    for series in observed.of(job_starts.JOB_STARTUP, job_id=job):
        if series.times[-1] >= began.times[-1] and series.last >= 0:
            yield series.labels.get("phase", ""), series.last
