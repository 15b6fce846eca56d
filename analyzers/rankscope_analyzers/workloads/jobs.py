"""Jobs with all that objects and pods of the cluster show about them: one value for each job.

What another object owns is a part of it: the Job of a JobSet, the Workload of a PyTorchJob, the Job
that launches an MPIJob. The Jobs of a CronJob are its runs, and ends count for each run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_analyzers.workloads import causes
from rankscope_analyzers.workloads.pods import PodFacts, Waiting
from rankscope_analyzers.workloads.state import Cause, WorkloadState

ABOUT = frozenset(("Workload", "PodGroup"))
SERIES = "CronJob"
RESTARTED = "JobSet"
"""The kind that a TrainJob leaves restarts to."""

LONGEST_CHAIN = 5
"""Owners above an object that are followed: Job, JobSet, TrainJob and two more."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment.

    Args:
        top: the outermost object; for the run of a CronJob the Job itself.
        name: of the job; for a run that of its CronJob.
        state: according to its objects, including its queue.
        cause: why it failed, according to its objects and pods.
        waiting: what it waits for, and the Unix time since when; empty while it runs.
        unscheduled: pods that have no node.
        gpus_held: GPUs of pods that have a node.
        gpus_waiting: those of them that a gang holds while other pods of it have no node.
        startup: seconds by phase of its present pods; the slowest pod counts.
        attempt: restarts of the whole job, counted by its object or, for a TrainJob, by its JobSet;
            None if neither counts them.
        interruptions: how often its queue evicted it, None without one.
        oldest_pod: Unix time at which the first of its pods was created; likewise the newest.
        nodes: that pods of it are on.
        pods: of it that have not ended.
    """

    top: WorkloadState
    name: str
    state: str
    cause: Cause
    waiting: Mapping[Waiting, float]
    queue: str
    unscheduled: int
    gpus_held: int
    gpus_waiting: int
    startup: Mapping[str, float]
    interruptions: int | None
    oldest_pod: float | None
    newest_pod: float | None
    nodes: frozenset[str]
    pods: int
    attempt: int | None = None

    @property
    def job_id(self) -> str:
        """Return the name of the job in all series."""
        return f"{self.top.namespace}/{self.name}"


def jobs(objects: Iterable[WorkloadState], pods: Iterable[PodFacts], now: float) -> tuple[Job, ...]:
    """Return the jobs of a cluster.

    Args:
        objects: of all kinds.
        pods: of jobs; those of others are left out.
        now: Unix time by the same clock as the objects', as nearly as possible.
    """
    by_uid = {one.uid: one for one in objects}
    tops = [one for one in by_uid.values() if is_top(one, by_uid)]
    about: dict[str, list[WorkloadState]] = defaultdict(list)
    for one in by_uid.values():
        if one.kind in ABOUT:
            for uid in _above(one, by_uid):
                about[uid].append(one)
    of_name, attempts = _pods_by_job(by_uid, pods), _attempts(by_uid)
    found = (_job(top, by_uid, about[top.uid], of_name.get(top.uid, ()), now) for top in tops)
    return tuple(replace(job, attempt=attempts.get(job.top.uid)) for job in found)


def _attempts(by_uid: Mapping[str, WorkloadState]) -> Mapping[str, int]:
    """Return how often jobs were restarted, by the uid of their objects and those above.

    A Job within a JobSet counts failed pods, not restarts of the whole.
    """
    found: dict[str, int] = {}
    for one in by_uid.values():
        attempt = one.progress.attempt
        if attempt is not None and (one.kind == RESTARTED or is_top(one, by_uid)):
            for uid in (one.uid, *_above(one, by_uid)):
                found[uid] = max(attempt, found.get(uid, 0))
    return found


def is_top(one: WorkloadState, by_uid: Mapping[str, WorkloadState]) -> bool:
    """Return True if an object is a separate job: neither part of another, nor about one."""
    if one.kind in ABOUT:
        return False
    if one.owner is None or one.owner.kind == SERIES:
        return True
    return one.owner.uid not in by_uid


def _above(one: WorkloadState, by_uid: Mapping[str, WorkloadState]) -> list[str]:
    """Return the uids of an object's owners, the nearest first."""
    found: list[str] = []
    owner = one.owner
    while owner is not None and len(found) < LONGEST_CHAIN:
        found.append(owner.uid)
        owner = by_uid[owner.uid].owner if owner.uid in by_uid else None
    return found


def _pods_by_job(
    by_uid: Mapping[str, WorkloadState], pods: Iterable[PodFacts]
) -> dict[str, list[PodFacts]]:
    """Return pods by the uid of their job: the newest of several of one name."""
    named: dict[tuple[str, str], WorkloadState] = {}
    for one in sorted(by_uid.values(), key=lambda one: one.created or 0.0):
        if one.kind not in ABOUT and one.kind != SERIES:
            named[one.namespace, one.name] = one
    found: dict[str, list[PodFacts]] = defaultdict(list)
    for pod in pods:
        part = named.get((pod.namespace, pod.job))
        if part is None or _older(pod, part):
            continue
        top = part
        while top.owner is not None and top.owner.kind != SERIES and top.owner.uid in by_uid:
            top = by_uid[top.owner.uid]
        found[top.uid].append(pod)
    return found


def _older(pod: PodFacts, job: WorkloadState) -> bool:
    """Return True if a pod is of an earlier job of the same name."""
    return pod.created is not None and job.created is not None and pod.created < job.created


def _job(
    top: WorkloadState,
    by_uid: Mapping[str, WorkloadState],
    about: Sequence[WorkloadState],
    pods: Sequence[PodFacts],
    now: float,
) -> Job:
    run = top.owner is not None and top.owner.kind == SERIES
    queued = next((one for one in about if one.kind == "Workload"), None)
    progress = top.progress
    state = progress.state
    if state in {"suspended", "pending"} and queued and queued.progress.state == "queued":
        state = "queued"
    active = [pod for pod in pods if pod.active]
    free = [pod for pod in active if pod.scheduled is None]
    held = sum(pod.gpus for pod in active if pod.scheduled is not None)
    births = [pod.created for pod in active if pod.created is not None]
    return Job(
        top=top,
        name=top.owner.name if run and top.owner else top.name,
        state=state,
        cause=_cause(top, queued, pods),
        waiting=_waiting(top, state, active, now),
        queue=progress.queue or (queued.progress.queue if queued else ""),
        unscheduled=len(free),
        gpus_held=held,
        gpus_waiting=held if free else 0,
        startup=_startup(top, queued, active),
        interruptions=queued.progress.interruptions if queued else None,
        oldest_pod=min(births, default=None),
        newest_pod=max(births, default=None),
        nodes=frozenset(pod.node for pod in active if pod.node),
        pods=len(active),
    )


def _cause(top: WorkloadState, queued: WorkloadState | None, pods: Sequence[PodFacts]) -> Cause:
    """Return why a job failed: pods and queues know more if its own object is vague."""
    own = top.progress.cause
    if top.progress.outcome != "failed" or own not in causes.VAGUE:
        return own
    failures = sorted((pod.failed or 0.0, pod.failure) for pod in pods if pod.failure)
    known = [cause for _, cause in failures if cause not in {"unknown", "application"}]
    if known:
        return known[0]
    if failures:
        return failures[0][1]
    return (queued.progress.interrupted if queued else "") or own


def _waiting(
    top: WorkloadState, state: str, pods: Sequence[PodFacts], now: float
) -> Mapping[Waiting, float]:
    if top.ended or state == "suspended":
        return {}
    if state == "queued":
        return {"quota": _since(top.created, now)}
    found: dict[Waiting, float] = {}
    for pod in pods:
        if pod.waiting and not (pod.waiting == "other" and pod.scheduled is not None):
            found[pod.waiting] = max(found.get(pod.waiting, 0.0), _since(pod.created, now))
    return found


def _since(began: float | None, now: float) -> float:
    return 0.0 if began is None else max(0.0, now - began)


def _startup(
    top: WorkloadState, queued: WorkloadState | None, pods: Sequence[PodFacts]
) -> Mapping[str, float]:
    """Return the seconds of each phase that is over for every pod of the newest attempt."""
    found: dict[str, float] = {}
    admitted = queued.progress.started if queued else None
    if admitted is not None and top.created is not None:
        found["queue"] = max(0.0, admitted - top.created)
    for phase in ("schedule", "image", "init"):
        values = [pod.startup[phase] for pod in pods if phase in pod.startup]
        if values and len(values) == len(pods):
            found[phase] = max(values)
    return found
