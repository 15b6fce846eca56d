"""Which jobs are gone: how long each has not been seen by a watch that could have seen it. Pure.

Agents that do not answer, and a watch that is not running, see no job either. Therefore only time
between evaluations counts, of one pause `LONGEST_GAP_SECONDS` at most, and it counts in full only
if the agents of a job's nodes answered.
Nothing of this is saved: a watch that starts, or takes over, counts anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.watch.lost_time import LONGEST_GAP_SECONDS

GONE_SECONDS = 1800.0
"""Seconds without a report on a job, while the agents of all its nodes answer, after which it is
gone. As long as a silence after which a job of the same name is treated as another one
(`followed_jobs.NEW_JOB_SECONDS`). Reports themselves go on for half an hour after the last step."""

UNCERTAIN_SECONDS = 86400.0
"""The same if its nodes do not answer or are unknown: they may be switched off, or only their
agents. An incident that returns after a day is a new one in any case."""

MAXIMUM_JOBS = 4096
"""Jobs that are remembered; of those that are absent, the one seen longest ago is dropped first."""


@dataclass(slots=True)
class _Seen:
    """A job as it was seen last.

    Args:
        nodes: that its ranks were on.
        at: watched seconds until then.
        missed: seconds since then in which its nodes answered.
    """

    nodes: frozenset[str]
    at: float
    missed: float = 0.0


class AbsentJobs:
    """Remembers when each job was seen last."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Seen] = {}
        self._watched = 0.0
        self._newest: float | None = None

    def look(self, reports: Sequence[JobReport], answered: Collection[str], now: float) -> None:
        """Record an evaluation of all jobs.

        Args:
            reports: one for each job.
            answered: nodes whose agents answered.
            now: Unix time of the evaluation.
        """
        before = now if self._newest is None else self._newest
        passed = min(max(0.0, now - before), LONGEST_GAP_SECONDS)
        self._newest = now
        self._watched += passed
        present = {report.job_id for report in reports}
        known = frozenset(answered)
        for job_id, one in self._jobs.items():
            if job_id not in present and one.nodes and one.nodes <= known:
                one.missed += passed
        for report in reports:
            self._jobs.pop(report.job_id, None)
            self._jobs[report.job_id] = _Seen(_nodes(report), self._watched)
        for job_id in list(self._jobs)[: -max(MAXIMUM_JOBS, len(present))]:
            del self._jobs[job_id]

    def expect(self, job_ids: Iterable[str]) -> None:
        """Treat jobs as just seen, on unknown nodes: another watch has seen them.

        Jobs that this one has seen remain as they are.
        """
        for job_id in job_ids:
            self._jobs.setdefault(job_id, _Seen(frozenset(), self._watched))

    def is_gone(self, job_id: str) -> bool:
        """Return True if a job has not been seen for so long that it must have ended.

        A job that was never seen is absent since the first evaluation.
        """
        seen = self._jobs.get(job_id)
        if seen is None:
            return self._watched >= UNCERTAIN_SECONDS
        return seen.missed >= GONE_SECONDS or self._watched - seen.at >= UNCERTAIN_SECONDS


def _nodes(report: JobReport) -> frozenset[str]:
    return frozenset(location.node for location in report.locations.values())
