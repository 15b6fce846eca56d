"""How long each recovery of jobs took: a histogram by class, and the newest one of each job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.goodput.account import Recovery
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.histogram import Histogram

BOUNDS = (15.0, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
"""From a restart within the processes' node to one that waits for another node for hours."""


class Recoveries:
    """The recoveries of all jobs."""

    def __init__(self) -> None:
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._newest: dict[str, Recovery] = {}

    def add(self, job: str, job_class: str, several: Sequence[Recovery]) -> None:
        """Add recoveries of a job, in their order."""
        for one in several:
            key = job_class, one.interruption
            self._durations.setdefault(key, Histogram(BOUNDS)).add(one.seconds)
            self._newest[job] = one

    def forget(self, jobs: Iterable[str]) -> None:
        """Forget jobs that are gone; the histogram keeps theirs."""
        for job in jobs:
            self._newest.pop(job, None)

    def samples(self) -> Iterator[Sample]:
        """Yield the series."""
        for (job_class, interruption), durations in sorted(self._durations.items()):
            yield metrics.RECOVERIES.sample(
                durations.value(), job_class=inert(job_class), interruption=interruption
            )
        for job, one in self._newest.items():
            yield metrics.JOB_RECOVERY.sample(
                one.seconds, job_id=inert(job), interruption=one.interruption
            )

    def kept(self) -> Any:
        """Return the histogram as JSON can hold it."""
        return [[*key, one.kept()] for key, one in self._durations.items()]

    def restore(self, kept: Iterable[Any]) -> None:
        """Go on from what was kept.

        Raises:
            TypeError, ValueError: it is no such thing.
        """
        durations = {
            (str(job_class), str(interruption)): Histogram.of(one, BOUNDS)
            for job_class, interruption, one in kept
        }
        self._durations, self._newest = durations, {}
