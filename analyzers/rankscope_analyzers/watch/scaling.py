"""How well jobs scale: throughput per GPU by number of GPUs, over all runs of a job.

A job is compared only with itself: runs of one name, on more GPUs and on fewer.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.goodput.model_work import Throughput
from rankscope_analyzers.text.sanitize import name as inert

REMEMBERED_SECONDS = 30 * 86400.0
"""How long runs of a job are compared with earlier ones."""

MOST_JOBS = 500
MOST_SIZES = 8
"""Numbers of GPUs of one job that are remembered; the smallest one, and the newest others."""


@dataclass(slots=True)
class Curve:
    """The throughput per GPU of one job.

    Args:
        seen: Unix time at which the job was last seen.
        unit: of the throughput: tokens or samples.
        gpus: the job's present number of GPUs.
        since: when it was first seen with that number.
        best: units per second and GPU, by number of GPUs.
    """

    seen: float
    unit: str
    gpus: int = 0
    since: float = math.inf
    best: dict[int, float] = field(default_factory=dict)

    def add(self, found: Throughput, gpus: int, now: float) -> None:
        """Add the values of a look."""
        self.seen = now
        if found.unit != self.unit:
            self.unit, self.best = found.unit, {}
        if gpus != self.gpus:
            self.gpus, self.since = gpus, now
        # Minutes that include another size of the job represent neither size.
        if found.since < self.since or found.rate <= 0:
            return
        self.best[gpus] = max(found.rate / gpus, self.best.pop(gpus, 0.0))
        while len(self.best) > MOST_SIZES:
            del self.best[next(size for size in self.best if size != min(self.best))]

    def efficiency(self) -> float | None:
        """Return the present throughput per GPU over that with the fewest GPUs, None for those."""
        if self.gpus not in self.best or self.gpus == min(self.best):
            return None
        return self.best[self.gpus] / self.best[min(self.best)]


class Scaling:
    """The curves of all jobs, over the looks of a watch."""

    def __init__(self) -> None:
        self._curves: dict[str, Curve] = {}

    def add(self, job: str, found: Throughput | None, gpus: int, now: float) -> None:
        """Add a look's values of a job; None if its throughput is unknown."""
        if found is None or gpus <= 0:
            return
        curve = self._curves.pop(job, None) or Curve(now, found.unit)
        self._curves[job] = curve
        curve.add(found, gpus, now)
        old = [
            name for name, one in self._curves.items() if not now - one.seen <= REMEMBERED_SECONDS
        ]
        for name in [*old, *list(self._curves)[: -MOST_JOBS or None]]:
            self._curves.pop(name, None)

    def samples(self, shown: Container[str]) -> Iterator[Sample]:
        """Yield the series of some jobs."""
        for job, curve in self._curves.items():
            if job not in shown:
                continue
            for gpus, rate in sorted(curve.best.items()):
                yield metrics.JOB_THROUGHPUT.sample(
                    rate, job_id=inert(job), gpus=str(gpus), unit=curve.unit
                )
            ratio = curve.efficiency()
            if ratio is not None:
                yield metrics.JOB_SCALING.sample(ratio, job_id=inert(job))

    def kept(self) -> Any:
        """Return the curves in JSON-ready form."""
        return {
            job: [curve.seen, curve.unit, {str(size): rate for size, rate in curve.best.items()}]
            for job, curve in self._curves.items()
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from saved curves.

        Raises:
            TypeError, ValueError, AttributeError: they are invalid.
        """
        found: dict[str, Curve] = {}
        for job, (seen, unit, best) in kept.items():
            rates = {int(size): float(rate) for size, rate in best.items()}
            if not all(size > 0 and 0 < rate < math.inf for size, rate in rates.items()):
                raise ValueError(f"{rates!r} is not a throughput of GPUs")
            if unit not in ("tokens", "samples"):
                raise ValueError(f"{unit!a} is not a unit")
            found[str(job)] = Curve(float(seen), str(unit), best=rates)
        self._curves = found
