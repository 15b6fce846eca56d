"""GPU time of jobs that was observed, and that incidents took: sums that never fall. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Stand:
    """A hang, and how much of its time counts already.

    Args:
        until: when the job was last known to stand, by the clock that says since when it does: a
            hang that began later is another one.
        lost_until: Unix time of the evaluation up to which its time counts as lost.
        observed_until: likewise, as observed.
    """

    until: float
    lost_until: float
    observed_until: float


class LostTime:
    """The sums of all jobs, in GPU seconds, by job; those that were seen last come last.

    Exported are sums that have been saved: a watch that is killed continues from these, and
    Prometheus would count all of a counter that fell again.

    Attributes:
        lost: by job and cause.
        observed: by job.
        stands: the last hang of each job that hung.
    """

    __slots__ = ("_announced", "lost", "observed", "stands")

    def __init__(self) -> None:
        self.lost: dict[str, dict[str, float]] = {}
        self.observed: dict[str, float] = {}
        self.stands: dict[str, Stand] = {}
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
            self.stands.pop(job_id, None)

    def add(
        self, job_id: str, gpu_seconds: float, incidents: Sequence[Incident], now: float
    ) -> None:
        """Add time that was observed, and the parts of it that incidents took.

        A job whose sums were dropped has none.

        Args:
            job_id: of the job.
            gpu_seconds: time that was observed.
            incidents: that were active meanwhile.
            now: Unix time at which it ends.
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
        if stand := self.stands.get(job_id):
            stood = any(one.stands for one in incidents)
            lost_until = now if stood else stand.lost_until
            self.stands[job_id] = replace(stand, lost_until=lost_until, observed_until=now)

    def add_hang(self, job_id: str, hung: Incident, gpus: int, now: float, *, known: bool) -> None:
        """Add the time of a hang that does not count yet.

        Of a new hang that is the time since the job's last step, as far as the job was watched and
        no other incident has taken it. Of one that went on while it could not be seen, as during a
        restart of the watch, it is that while: the job has made no step in it either.

        Args:
            job_id: of the job.
            hung: the hang.
            gpus: of the job.
            now: Unix time of the evaluation.
            known: True if the evaluation before had it, too.
        """
        if job_id not in self.lost:
            return
        stood = hung.cost.gpu_hours * SECONDS_OF_AN_HOUR if hung.cost else 0.0
        since, until = _span(hung)
        before = self.stands.get(job_id)
        if before is not None and (known or since < before.until):
            self.observed[job_id] += gpus * max(0.0, now - before.observed_until)
            stood = min(stood, gpus * max(0.0, now - before.lost_until))
        left = self.observed[job_id] - sum(self.lost[job_id].values())
        self.lost[job_id][hung.cause.kind] += max(0.0, min(left, stood))
        self.stands[job_id] = Stand(until, now, now)

    def restore(
        self,
        lost: Mapping[str, Mapping[str, float]],
        observed: Mapping[str, float],
        stands: Mapping[str, Stand],
    ) -> None:
        """Continue from saved sums, but from none that is below the present one.

        Saved sums may be older than those that were exported, and Prometheus would count all of a
        counter that fell again.

        Args:
            lost: as the attribute.
            observed: likewise, of the same jobs.
            stands: likewise; of jobs that hung.
        """
        for job_id, saved in lost.items():
            own = self.lost.pop(job_id, {})
            causes = dict.fromkeys((*saved, *own))
            larger = {cause: max(saved.get(cause, 0.0), own.get(cause, 0.0)) for cause in causes}
            self.lost[job_id] = defaultdict(float, larger)
            self.observed[job_id] = max(observed[job_id], self.observed.get(job_id, 0.0))
            both = (known[job_id] for known in (stands, self.stands) if job_id in known)
            if newest := max(both, key=lambda stand: stand.lost_until, default=None):
                self.stands[job_id] = newest

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


def _span(hung: Incident) -> tuple[float, float]:
    """Return since when a job stands, and until when it is known to, by the same clock."""
    found = hung.timing or hung.cause
    since = found.since_unix_seconds or 0.0
    return since, since + sum(one.observed for one in found.evidence[:1])
