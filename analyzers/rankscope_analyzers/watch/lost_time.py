"""GPU time of jobs that was observed, and that incidents took: sums that never fall. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.fusion.job_report import Incident
from rankscope_analyzers.text.sanitize import name as inert

MAXIMUM_JOBS = 4096
"""Jobs whose sums are kept; those that ended first are dropped first."""

LONGEST_GAP_SECONDS = 300.0
"""Longest time between two evaluations that counts: what happened during a longer one is
unknown."""

SECONDS_OF_AN_HOUR = 3600.0


class LostTime:
    """The sums of all jobs, in GPU seconds, by job; those that were seen last come last.

    Exported are sums that have been saved: a watch that is killed continues from these, and
    Prometheus would count all of a counter that fell again.

    Attributes:
        lost: by job and cause.
        observed: by job.
    """

    __slots__ = ("_announced", "lost", "observed")

    def __init__(self) -> None:
        self.lost: dict[str, dict[str, float]] = {}
        self.observed: dict[str, float] = {}
        self._announced: tuple[Sample, ...] = ()

    def keep(self, job_ids: Iterable[str]) -> None:
        """Move the jobs of an evaluation to the end, then drop those seen longest ago.

        All are moved before any is dropped: else a job too many would cost each job its sums.
        """
        for job_id in job_ids:
            lost = self.lost.pop(job_id, None)
            self.lost[job_id] = defaultdict(float) if lost is None else lost
            self.observed.setdefault(job_id, 0.0)
        for job_id in list(self.lost)[: max(0, len(self.lost) - MAXIMUM_JOBS)]:
            del self.lost[job_id], self.observed[job_id]

    def add(self, job_id: str, gpu_seconds: float, incidents: Iterable[Incident]) -> None:
        """Add time that was observed, and the parts of it that incidents took.

        A job whose sums were dropped has none.
        """
        if job_id not in self.lost:
            return
        self.observed[job_id] += gpu_seconds
        left = 1.0
        for incident in incidents:
            if incident.cost is not None:
                # Several incidents cannot take more than all of the time.
                part = min(left, incident.cost.lost_fraction)
                left -= part
                self.lost[job_id][incident.cause.kind] += part * gpu_seconds

    def add_before_hang(self, job_id: str, hung: Incident) -> None:
        """Add the time from a job's last step to the evaluation that finds it hung.

        It counts as far as the job was watched and no other incident has taken it.
        """
        if job_id not in self.lost:
            return
        lost = self.lost[job_id]
        left = self.observed[job_id] - sum(lost.values())
        stood = hung.cost.gpu_hours * SECONDS_OF_AN_HOUR if hung.cost else 0.0
        lost[hung.cause.kind] += max(0.0, min(left, stood))

    def restore(
        self, lost: Mapping[str, Mapping[str, float]], observed: Mapping[str, float]
    ) -> None:
        """Continue from saved sums, but from none that is below the present one.

        Saved sums may be older than those that were exported, and Prometheus would count all of a
        counter that fell again.

        Args:
            lost: as the attribute.
            observed: likewise, of the same jobs.
        """
        for job_id, saved in lost.items():
            own = self.lost.pop(job_id, {})
            causes = dict.fromkeys((*saved, *own))
            larger = {cause: max(saved.get(cause, 0.0), own.get(cause, 0.0)) for cause in causes}
            self.lost[job_id] = defaultdict(float, larger)
            self.observed[job_id] = max(observed[job_id], self.observed.get(job_id, 0.0))

    def announce(self) -> None:
        """Export the present sums from now on: they have been saved."""
        self._announced = tuple(self._samples())

    def samples(self) -> Iterator[Sample]:
        """Yield the series as they were announced last."""
        yield from self._announced

    def _samples(self) -> Iterator[Sample]:
        for job_id, by_cause in self.lost.items():
            for cause, seconds in by_cause.items():
                yield metrics.LOST_GPU_SECONDS.sample(seconds, job_id=inert(job_id), cause=cause)
        for job_id, seconds in self.observed.items():
            yield metrics.OBSERVED_GPU_SECONDS.sample(seconds, job_id=inert(job_id))
