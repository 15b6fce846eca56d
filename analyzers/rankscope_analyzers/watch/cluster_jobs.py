"""The jobs of the cluster for the watch: current states, and how jobs ended.

Current states are exported at once. A sum is exported only after it is saved: otherwise the next
leader would count an end again that has already been exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rankscope_agent.contract.canary import is_canary
from rankscope_agent.contract.metrics import cluster_jobs as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.configuration.values import TIMES_TO_COMPLETE
from rankscope_analyzers.intake.cluster_objects import ClusterView
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.completions import Completions, restored
from rankscope_analyzers.watch.job_samples import of_job
from rankscope_analyzers.watch.node_notices import NodeNotices
from rankscope_analyzers.watch.process_starts import ProcessStart
from rankscope_analyzers.watch.quota_samples import awaited, quota_samples
from rankscope_analyzers.workloads.jobs import SERIES, Job, jobs

KEPT_AS = "cluster_jobs"
"""Its part of a watch's state."""

AFTER_END_SECONDS = 3600.0
"""Seconds that the series of a job outlast its end."""

MOST_JOBS = 1000
"""Jobs that have series of their own; active ones come first."""


class ClusterJobs:
    """Looks at the jobs of a cluster repeatedly.

    Args:
        view: returns what is currently known of the cluster's objects.
        objectives: within which jobs should succeed, by class; "" for all other classes.
    """

    def __init__(
        self,
        view: Callable[[], ClusterView],
        objectives: Mapping[str, str] = TIMES_TO_COMPLETE,
    ) -> None:
        self._view = view
        self._objectives = objectives
        self._completions = Completions(objectives=objectives)
        self._notices = NodeNotices()
        self._recent: dict[str, tuple[Job, float]] = {}
        self._current: tuple[Sample, ...] = ()
        self._announced: tuple[Sample, ...] = ()
        self._counted = False
        self._starts: Mapping[str, ProcessStart] = {}
        self._waiting: frozenset[str] = frozenset()

    @property
    def counted(self) -> bool:
        """Return True if ends were counted that were not exported yet."""
        return self._counted

    def waiting(self) -> frozenset[str]:
        """Return the jobs that hold GPUs while other pods of theirs have no node."""
        return self._waiting

    def note_starts(self, starts: Mapping[str, ProcessStart]) -> None:
        """Record the starts of jobs' processes from agents, for the next look."""
        self._starts = starts

    def look(self, now: float) -> None:
        """Look at all jobs; count those that ended.

        Args:
            now: Unix time.
        """
        view = self._view()
        conditions = tuple(_conditions(view))
        if not view.whole:
            self._current = conditions
            return
        every = jobs(view.objects, view.pods, now)
        found = tuple(job for job in every if not is_canary(job.job_id))
        uids = (one.uid for one in view.objects)
        if self._completions.look(found, view.gone, uids, view.followed, now):
            self._counted = True
        for job in found:
            if job.job_id in self._starts and not job.top.ended:
                self._completions.processes_started(job, self._starts[job.job_id])
        self._waiting = frozenset(job.job_id for job in found if job.gpus_waiting)
        self._remember(found, now)
        self._note(view)
        notices = {node.name: node.notices for node in view.nodes or () if node.notices}
        quotas = tuple(view.quotas)
        own = (of_job(job, notices, awaited(job, quotas)) for job in self._shown(found))
        jobs_now = (sample for samples in own for sample in samples)
        self._current = (*conditions, *quota_samples(quotas), *jobs_now)

    def _note(self, view: ClusterView) -> None:
        if view.nodes is not None and self._notices.look(view.nodes):
            self._counted = True

    def announce(self) -> None:
        """Export the sums, which are saved by now."""
        self._announced = (*_sums(self._completions), *_noticed(self._notices))
        self._counted = False

    def stand_by(self) -> None:
        """Discard the sums, which another leader continues, and what was last seen."""
        self._view()
        self._completions = Completions(objectives=self._objectives)
        self._notices, self._recent = NodeNotices(), {}
        self._current = self._announced = ()
        self._counted = False

    def samples(self) -> Iterator[Sample]:
        """Yield all series."""
        yield from self._current
        yield from self._announced

    def kept(self) -> Any:
        """Return the state to save."""
        return {**self._completions.kept(), "notices": self._notices.kept()}

    def restore(self, kept: Any) -> None:
        """Continue from the state that another watch saved, from nothing if it is None.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: it is invalid; the sums restart.
        """
        self._completions, self._notices = Completions(objectives=self._objectives), NodeNotices()
        if kept is not None:
            notices = NodeNotices.of(kept.get("notices"))
            self._completions, self._notices = restored(kept, self._objectives), notices
        self.announce()

    def _remember(self, found: tuple[Job, ...], now: float) -> None:
        for job in found:
            if job.top.ended and job.top.uid not in self._recent:
                self._recent[job.top.uid] = (job, min(now, job.top.progress.ended or now))
        self._recent = {
            uid: (job, at)
            for uid, (job, at) in list(self._recent.items())[-2 * MOST_JOBS :]
            if now - at < AFTER_END_SECONDS
        }

    def _shown(self, found: tuple[Job, ...]) -> list[Job]:
        """Return one job for each name: an active one, else the newest of those that ended."""
        ended = [job for job, _ in self._recent.values()]
        going_on = [job for job in found if not job.top.ended]
        chosen: dict[str, Job] = {}
        for job in sorted([*ended, *going_on], key=_precedence):
            chosen[job.job_id] = job
        return sorted(chosen.values(), key=_precedence, reverse=True)[:MOST_JOBS]


def _precedence(job: Job) -> tuple[bool, bool, float]:
    """Sort key of jobs of one name: the last one is shown."""
    series = job.top.kind == SERIES and job.state != "running"
    return not series, not job.top.ended, job.top.created or 0.0


def _conditions(view: ClusterView) -> Iterator[Sample]:
    for resource, condition in view.conditions.items():
        yield metrics.WATCH_OBJECTS.sample(1, resource=resource, condition=condition)


def _noticed(notices: NodeNotices) -> Iterator[Sample]:
    for notice, count in notices.totals.items():
        yield metrics.NODE_NOTICES.sample(count, notice=notice)


def _sums(completions: Completions) -> Iterator[Sample]:
    for (namespace, job_class, outcome, cause), count in sorted(completions.totals.items()):
        yield metrics.JOB_COMPLETIONS.sample(
            count,
            job_namespace=inert(namespace),
            job_class=inert(job_class),
            outcome=outcome,
            cause=cause,
        )
    for job_class, histogram in sorted(completions.durations.items()):
        yield metrics.JOB_DURATION.sample(histogram.value(), job_class=inert(job_class))
        yield metrics.JOBS_LATE.sample(completions.late[job_class], job_class=inert(job_class))
    for (job_class, phase), histogram in sorted(completions.startups.items()):
        yield metrics.JOB_STARTUPS.sample(
            histogram.value(), job_class=inert(job_class), phase=phase
        )
