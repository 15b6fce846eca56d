"""The failures of each job on this node, combined from the logs of its pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.fair_shares import choose
from rankscope_agent.contract.job_names import namespace_of
from rankscope_agent.contract.metrics import job_logs as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.nccl_log.failures import SeenFailure
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.placement import place_ranks

MAX_JOBS = 64
"""Jobs with failures that are remembered, shared by namespaces, of each those that failed last."""

MAX_FAILURES = 2
"""Attempts reported per job: the one that failed last, and the one before it."""

INCIDENT_SECONDS = 120.0
"""Failures this close together belong to one attempt: launchers give ranks half a minute to exit,
and a restart takes as long."""

KEPT_SECONDS = 3600.0
"""How long a job without pods is reported: as long as the events of its pods are."""

CLOCK_SECONDS = 60.0
"""How much earlier than in its log Kubernetes may date the end of a container: its times are in
whole seconds and by other clocks."""


@dataclass(slots=True)
class _Job:
    """What is known about one job; failures are in chronological order."""

    failures: list[SeenFailure]
    present: float


class JobFailures:
    """All jobs of the node.

    Args:
        directory: provides the job of a pod, and the state of its pods.
    """

    def __init__(self, directory: PodDirectory) -> None:
        self._directory = directory
        self._jobs: dict[str, _Job] = {}
        self._job_of: dict[str, str] = {}
        self._ranks: dict[str, dict[int, int]] = {}
        self._outside = self._former_outside = ""
        self.outside_since = 0.0
        """Unix time at which the oldest rank outside of pods began, 0 if unknown."""
        self._view = directory.view

    def look_at_ranks(self, pods: Iterable[PodLogs], now: float) -> None:
        """Record which ranks run where, before more is read of the pods' logs.

        Args:
            pods: pods with logs.
            now: the Unix time.
        """
        self._note_ranks()
        for pod in pods:
            if not pod.owner.uid:
                self._take_earlier(pod, now)

    def update(self, pods: Iterable[PodLogs], departed: Sequence[PodLogs], now: float) -> None:
        """Take over the current results from logs.

        Args:
            pods: pods with logs.
            departed: pods that have gone since the previous call.
            now: the Unix time.
        """
        present = list(pods)
        for pod in (*present, *departed):
            self._take_pod(pod, now)
        there = {pod.owner.uid for pod in present}
        self._job_of = {uid: job for uid, job in self._job_of.items() if uid in there}
        self._ranks = {
            uid: ranks
            for uid, ranks in self._ranks.items()
            if not uid or uid in there or self._directory.find(uid)
        }
        recent = [job for job, one in self._jobs.items() if now - one.present < KEPT_SECONDS]
        recent.sort(key=lambda job: -self._jobs[job].failures[-1].at)
        kept = choose(recent, lambda job: (namespace_of(job), ""), MAX_JOBS)
        self._jobs = {job: self._jobs[job] for job in reversed(kept)}

    def samples(self) -> Iterator[Sample]:
        """Yield the series of all jobs with failures."""
        for job, known in self._jobs.items():
            labels: dict[tuple[str, str, str], float] = {}
            for seen in known.failures:
                rank = "" if seen.rank is None else str(seen.rank)
                labels[seen.cause, rank, "true" if seen.own else "false"] = seen.at
            for (cause, rank, own), at in labels.items():
                yield metrics.JOB_LOG_FAILURE.sample(
                    at, job_id=job, cause=cause, rank=rank, own=own
                )

    def state(self) -> list[Any]:
        """Return the state as values for JSON."""
        return [
            [job, known.present, [[f.cause, f.rank, f.at, f.own] for f in known.failures]]
            for job, known in self._jobs.items()
        ]

    def restore(self, state: Iterable[Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a valid state; likewise TypeError.
        """
        for job, present, failures in state:
            seen = [SeenFailure(*values) for values in failures]
            if seen:
                self._jobs[job] = _Job(seen[-MAX_FAILURES:], present)

    def _take_pod(self, logs: PodLogs, now: float) -> None:
        uid = logs.owner.uid
        pod = self._directory.find(uid) if uid else None
        if pod is not None:
            self._job_of[uid] = self._directory.training_job_of(pod)
        job = self._job_of.get(uid, "") if uid else self._outside
        if job in self._jobs:
            self._jobs[job].present = now
        logs.failures.ranks = self._ranks.get(uid, {})
        marked = logs.failures.marked_at
        if marked is None and not logs.failures.has_news:
            return
        failed = self._directory.newest_failure(job) if job and marked is not None else 0.0
        ended = marked is not None and failed >= marked - CLOCK_SECONDS
        alive = pod is not None and not (pod.ended or pod.deleting)
        for seen in logs.failures.settle(now, logs.progress, ended=ended, alive=alive):
            if job:
                self._take(job, seen, now)

    def _take_earlier(self, logs: PodLogs, now: float) -> None:
        """Take over what logs outside of pods show of the job before the one that runs there."""
        logs.failures.begin(self.outside_since)
        for seen in logs.failures.found(now, before=self.outside_since):
            if self._former_outside:
                self._take(self._former_outside, seen, now)

    def _note_ranks(self) -> None:
        """Record ranks by local rank; processes that are gone keep theirs.

        Logs outside of pods belong to the job whose ranks run there, if there is only one.
        """
        view = self._directory.view
        if view is self._view:
            return
        self._view = view
        # Without those that may not use their job name.
        placed = [one for one in place_ranks(view, self._directory) if not one.pod_uid]
        own = {one.job_id for one in placed if one.job_id}
        if own:
            began = (one.process.started_unix_seconds for one in placed)
            self.outside_since = min(at or 0.0 for at in began)
            self._former_outside = self._outside
        if own - {self._outside}:
            self._outside = own.pop() if len(own) == 1 else ""
            self._ranks.pop("", None)
        for process in view.processes:
            local = process.identity.local_rank
            if local is not None:
                known = self._ranks.setdefault(process.placement.pod_uid, {})
                known[local] = process.identity.rank

    def _take(self, job: str, seen: SeenFailure, now: float) -> None:
        known = self._jobs.setdefault(job, _Job([], now))
        known.present = now
        for index, other in enumerate(known.failures):
            if abs(other.at - seen.at) < INCIDENT_SECONDS:
                known.failures[index] = min(other, seen, key=_order)
                break
        else:
            known.failures.append(seen)
        known.failures = sorted(known.failures, key=lambda one: one.at)[-MAX_FAILURES:]


def _order(seen: SeenFailure) -> tuple[bool, bool, float]:
    """Order the failures of one attempt: own ones, known causes, and earlier ones first."""
    return not seen.own, seen.cause == causes.UNKNOWN, seen.at
