"""The GPU time that starts and restarts of jobs take, by the phases that agents report."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.bill import Owner
from rankscope_analyzers.watch.process_starts import ProcessStart

PHASES = ("first_step", "rendezvous", "process", "launch")
"""The phases, the last one first; nccl_init is a part of others."""

BEFORE, UNKNOWN = "before", "unknown"

LATE_SECONDS = 120.0
"""How long the phases of a start are awaited: four polls of the watch."""

OLD_SECONDS = 900.0
"""Maximum age of a start beyond its duration; an older one is not the one whose time was counted:
an account waits for five minutes of first steps, and pages arrive within two."""


@dataclass(slots=True)
class _Waiting:
    """GPU time of a start whose phases are not known yet."""

    seconds: float
    since: float


class StartPhases:
    """The sums of all projects, over the looks of a watch."""

    def __init__(self) -> None:
        self._sums: dict[Owner, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._waiting: dict[str, _Waiting] = {}
        self._newest: dict[str, float] = {}

    def add(
        self,
        owner: Owner,
        job: str,
        seconds: float,
        gpus: int,
        start: ProcessStart | None,
        now: float,
    ) -> None:
        """Record a look's values of a job.

        Args:
            owner: project and class.
            job: its name.
            seconds: of GPUs that it spent on starting, found at this look.
            gpus: that it has.
            start: the newest start of its processes, None if unknown.
            now: Unix time.
        """
        waiting = self._waiting.pop(job, None) or _Waiting(0.0, now)
        waiting.seconds += seconds
        if waiting.seconds <= 0 or gpus <= 0:
            return
        oldest = now - waiting.seconds / gpus - OLD_SECONDS
        if start is not None and start.newest > max(self._newest.get(job, 0.0), oldest):
            self._newest[job] = start.newest
            self._split(owner, waiting.seconds, gpus, start)
        elif now - waiting.since >= LATE_SECONDS:
            self._sums[owner][UNKNOWN] += waiting.seconds
        else:
            self._waiting[job] = waiting

    def _split(self, owner: Owner, seconds: float, gpus: int, start: ProcessStart) -> None:
        left = seconds
        for phase in PHASES:
            taken = min(start.phases.get(phase, 0.0) * gpus, left)
            if taken > 0:
                self._sums[owner][phase] += taken
                left -= taken
        self._sums[owner][BEFORE] += left

    def forget(self, jobs: Iterable[str]) -> None:
        """Forget jobs that are gone."""
        for job in jobs:
            self._waiting.pop(job, None)
            self._newest.pop(job, None)

    def samples(self) -> Iterator[Sample]:
        """Yield the series."""
        for (project, job_class), sums in self._sums.items():
            labels = {"project": inert(project), "job_class": inert(job_class)}
            for phase, seconds in sums.items():
                yield metrics.PROJECT_START_GPU_SECONDS.sample(seconds, phase=phase, **labels)

    def kept(self) -> Any:
        """Return the sums in JSON-ready form."""
        return [[*owner, dict(sums)] for owner, sums in self._sums.items()]

    def restore(self, kept: Iterable[Any]) -> None:
        """Continue from saved sums.

        Raises:
            TypeError, ValueError, AttributeError: they are invalid.
        """
        found: dict[Owner, dict[str, float]] = {}
        for project, job_class, sums in kept:
            seconds = {phase: float(value) for phase, value in sums.items()}
            for phase, value in seconds.items():
                if phase not in (*PHASES, BEFORE, UNKNOWN) or not 0 <= value < math.inf:
                    raise ValueError(f"{phase!a}: {value!a} is not a sum of a phase")
            found[str(project), str(job_class)] = seconds
        self._sums.clear()
        for owner, seconds in found.items():
            self._sums[owner].update(seconds)
        self._waiting, self._newest = {}, {}
