"""How much jobs compute, as series: current MFU, tokens and epochs of projects as counters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import job_work
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.goodput.model_work import OfJob, Work, copies, work
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.bill import Owner


class Computed:
    """What jobs compute, over the looks of a watch."""

    def __init__(self) -> None:
        self._now: dict[str, Work] = {}
        self._counted: dict[str, dict[str, float]] = {}
        self._tokens: dict[Owner, float] = defaultdict(float)
        self._furthest: dict[str, float] = {}
        self._epochs: dict[Owner, float] = defaultdict(float)

    def begin(self) -> None:
        """Begin a look: discard the current values of jobs."""
        self._now = {}

    def add(
        self, owner: Owner, job: str, series: OfJob, models: Sequence[str], gpus: int, now: float
    ) -> None:
        """Record a look's values of a job whose processes live.

        Args:
            owner: project and class.
            job: its name.
            series: of it.
            models: of its ranks' GPUs.
            gpus: that it holds.
            now: Unix time.
        """
        found = work(series, models, gpus, now)
        if found is not None:
            self._now[job] = found
        tokens = series.get(job_work.JOB_TOKENS.name, ())
        before = self._counted.get(job, {})
        self._counted[job] = {one.node: float(one.times[-1]) for one in tokens}
        grown = sum(_grown(one, before[one.node]) for one in tokens if one.node in before)
        if grown:
            self._tokens[owner] += grown / copies(series)
        self._add_epochs(owner, job, series.get(job_work.JOB_EPOCHS.name, ()))

    def _add_epochs(self, owner: Owner, job: str, series: Sequence[Series]) -> None:
        """Add a job's progress; repeated steps are no progress."""
        if not series:
            return
        newest = max(float(one.values[-1]) for one in series)
        before = self._furthest.get(job, newest)
        self._furthest[job] = max(before, newest)
        if newest > before:
            self._epochs[owner] += newest - before

    def forget(self, jobs: Iterable[str]) -> None:
        """Forget jobs that are gone."""
        for job in jobs:
            self._counted.pop(job, None)
            self._furthest.pop(job, None)

    def samples(self) -> Iterator[Sample]:
        """Yield the current values of jobs."""
        for job, found in self._now.items():
            labels = {"job_id": inert(job), "flops_by": found.by}
            yield metrics.JOB_FLOPS.sample(found.flops, **labels)
            if found.mfu is not None and found.peak is not None:
                yield metrics.JOB_PEAK_FLOPS.sample(
                    found.peak, job_id=labels["job_id"], dtype=found.dtype
                )
                yield metrics.JOB_MFU.sample(found.mfu, dtype=found.dtype, **labels)

    def sums(self) -> Iterator[Sample]:
        """Yield the tokens and epochs of projects."""
        both = (metrics.PROJECT_TOKENS, self._tokens), (metrics.PROJECT_EPOCHS, self._epochs)
        for metric, sums in both:
            for (project, job_class), value in sums.items():
                yield metric.sample(value, project=inert(project), job_class=inert(job_class))

    def kept(self) -> Any:
        """Return the sums in JSON-ready form."""
        owners = {**self._tokens, **self._epochs}
        return [[*one, self._tokens.get(one, 0.0), self._epochs.get(one, 0.0)] for one in owners]

    def restore(self, kept: Iterable[Any]) -> None:
        """Continue from saved sums.

        Raises:
            TypeError, ValueError: they are invalid.
        """
        found = {
            (str(project), str(name)): (float(tokens), float(*epochs) if epochs else 0.0)
            for project, name, tokens, *epochs in kept  # an older watch saved no epochs
        }
        if not all(0 <= one < math.inf for both in found.values() for one in both):
            raise ValueError(f"{found!r} are not sums")
        self._now, self._counted, self._furthest = {}, {}, {}
        self._tokens, self._epochs = (
            defaultdict(float, {owner: both[index] for owner, both in found.items() if both[index]})
            for index in (0, 1)
        )


def _grown(counter: Series, since: float) -> float:
    """Return how much a counter has grown since a time at which it was read."""
    newer = int(np.searchsorted(counter.times, since, side="right"))
    values = counter.values[max(newer - 1, 0) :]
    grown = np.diff(values)
    return float(np.where(grown < 0, values[1:], grown).sum())
