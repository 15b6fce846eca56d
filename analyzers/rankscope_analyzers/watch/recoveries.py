"""How long recoveries of jobs took: a histogram by class, how many were late, each job's newest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.command import age_seconds
from rankscope_analyzers.configuration.values import TIMES_TO_RECOVER
from rankscope_analyzers.goodput.account import Recovery
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.histogram import Histogram

BOUNDS = (15.0, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
"""From a restart within the processes' node to one that waits for another node for hours."""


class Recoveries:
    """The recoveries of all jobs.

    Args:
        objectives: seconds within which jobs should recover, by class; "" for all other classes.
    """

    def __init__(self, objectives: Mapping[str, str] = TIMES_TO_RECOVER) -> None:
        self._objectives = {
            name: age_seconds(age, "a time to recover") for name, age in objectives.items()
        }
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._late: Counter[tuple[str, str]] = Counter()
        self._newest: dict[str, Recovery] = {}

    def add(self, job: str, job_class: str, several: Sequence[Recovery]) -> None:
        """Add recoveries of a job, in their order."""
        objective = self._objectives.get(job_class, self._objectives[""])
        for one in several:
            key = job_class, one.interruption
            self._late[key] += one.seconds > objective
            self._durations.setdefault(key, Histogram(BOUNDS)).add(one.seconds)
            self._newest[job] = one

    def forget(self, jobs: Iterable[str]) -> None:
        """Forget jobs that are gone; the histogram keeps theirs."""
        for job in jobs:
            self._newest.pop(job, None)

    def samples(self) -> Iterator[Sample]:
        """Yield the series."""
        for key, durations in sorted(self._durations.items()):
            labels = {"job_class": inert(key[0]), "interruption": key[1]}
            yield metrics.RECOVERIES.sample(durations.value(), **labels)
            yield metrics.RECOVERIES_LATE.sample(self._late[key], **labels)
        for job, one in self._newest.items():
            yield metrics.JOB_RECOVERY.sample(
                one.seconds, job_id=inert(job), interruption=one.interruption
            )

    def kept(self) -> Any:
        """Return histogram and counts in JSON-ready form."""
        return [[*key, one.kept(), self._late[key]] for key, one in self._durations.items()]

    def restore(self, kept: Iterable[Any]) -> None:
        """Continue from saved state.

        Raises:
            TypeError, ValueError: it is invalid.
        """
        durations, late = {}, Counter[tuple[str, str]]()
        for job_class, interruption, one, *counted in kept:
            key = str(job_class), str(interruption)
            durations[key] = Histogram.of(one, BOUNDS)
            late[key] = _count(*counted)
        self._durations, self._late, self._newest = durations, late, {}


def _count(kept: Any = 0) -> int:
    """Return a saved count; older states have none."""
    if not isinstance(kept, int) or kept < 0:
        raise ValueError(f"{kept!r} is not a count")
    return kept
