"""How often the jobs of projects are interrupted: means to failure, detection and recovery.

Sums of time and of events, so that Prometheus can compute the means over any time and set of jobs:
MTTF is job time over interruptions, MTTR recovery time over interruptions, MTTD the time from the
beginnings of incidents to when they were found, over the number of incidents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.bill import Owner


@dataclass(slots=True)
class _Sums:
    """The sums of one project and class; times in seconds of jobs, however many GPUs they have."""

    job: float = 0.0
    restarts: float = 0.0
    hangs: float = 0.0
    restarting: float = 0.0
    hanging: float = 0.0
    detected: float = 0.0
    detecting: float = 0.0


class Interruptions:
    """The sums of all projects and classes."""

    def __init__(self) -> None:
        self._sums: dict[Owner, _Sums] = {}

    def add(
        self, owner: Owner, seconds: Mapping[str, float], gpus: int, restarts: int, hangs: int
    ) -> None:
        """Add the results of a look at a job.

        Args:
            owner: project and class.
            seconds: of its GPUs, by part.
            gpus: number of GPUs.
            restarts: that were counted at this look.
            hangs: likewise.
        """
        if gpus <= 0:
            return
        sums = self._sums.setdefault(owner, _Sums())
        sums.job += sum(seconds.values()) / gpus
        sums.restarts += restarts
        sums.hangs += hangs
        sums.restarting += seconds.get(parts.RESTART, 0.0) / gpus
        sums.hanging += seconds.get(parts.HANG, 0.0) / gpus

    def detect(self, owner: Owner, seconds: float) -> None:
        """Add an incident that was found `seconds` after it began."""
        sums = self._sums.setdefault(owner, _Sums())
        sums.detected += 1
        sums.detecting += seconds

    def samples(self) -> Iterator[Sample]:
        """Yield the series."""
        for (project, job_class), sums in self._sums.items():
            labels = {"project": inert(project), "job_class": inert(job_class)}
            yield metrics.PROJECT_JOB_SECONDS.sample(sums.job, **labels)
            yield metrics.PROJECT_DETECTIONS.sample(sums.detected, **labels)
            yield metrics.PROJECT_DETECTION_SECONDS.sample(sums.detecting, **labels)
            for kind, count, time in (
                (parts.RESTART, sums.restarts, sums.restarting),
                (parts.HANG, sums.hangs, sums.hanging),
            ):
                own = {**labels, "interruption": kind}
                yield metrics.PROJECT_INTERRUPTIONS.sample(count, **own)
                yield metrics.PROJECT_RECOVERY_SECONDS.sample(time, **own)

    def kept(self) -> Any:
        """Return the sums in JSON-ready form."""
        return [[*owner, list(asdict(sums).values())] for owner, sums in self._sums.items()]

    def restore(self, kept: Iterable[Any]) -> None:
        """Continue from saved sums.

        Raises:
            TypeError, ValueError: they are invalid.
        """
        found: dict[Owner, _Sums] = {}
        for project, job_class, values in kept:
            numbers = [float(value) for value in values]
            if not all(0 <= number < math.inf for number in numbers):
                raise ValueError(f"{numbers!r} are not sums")
            found[str(project), str(job_class)] = _Sums(*numbers)
        self._sums = found
