"""The history of each job's pods on this node: failures, restarts, preemptions.

It is counted as the API server's events arrive, because a pod may be deleted and recreated between
two scrapes. What happened before the agent's first list is known by its time but not counted.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.fair_shares import Holder, choose
from rankscope_agent.contract.job_names import namespace_of
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.pod_status import Failure
from rankscope_agent.sources.pods.records import Pod

log = logging.getLogger(__name__)

MAX_JOBS = 256
"""Jobs with a history that is kept: a kubelet runs 110 pods by default. Those without a running pod
make room for others, however many completed pods are still listed."""

MAX_REASONS = 4
"""Reasons of failures kept per job and node, the newest: a repeated failure has one or two."""

MAX_REPLICAS = 256
"""Replicas of a job on a node."""

KEPT_SECONDS = 3600.0
"""How long a job without pods is still reported: long enough for whoever was paged to see it."""

MAX_GONE = 4
"""Such jobs that are reported, shared by namespaces, of each those that ended last: their series
are in addition to those of running jobs."""

AWAITED_SECONDS = 300.0
"""How long replacements for a job's last pods are awaited, so that they are recognised as such."""

LOOP_SECONDS = 600.0
"""A container that has run for this long is not in a crash loop: the kubelet then resets its
back-off (twice the longest one, MaxContainerBackOff in pkg/kubelet/kubelet.go)."""

_RANDOM_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""What the API server appends to `generateName` (apimachinery pkg/util/rand)."""

_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"


@dataclass(frozen=True, slots=True)
class Occupant:
    """The newest pod that is a given replica of a job, and the UID of its creator."""

    uid: str
    maker: str
    created_unix_seconds: float


@dataclass(slots=True)
class JobLife:
    """The history of one job's pods.

    Args:
        failed: containers and pods that failed.
        restarted: containers that were restarted, and pods that replaced others.
        preempted: pods evicted in favour of others.
        newest: Unix time of the newest failure by reason and detail.
        replicas: the newest pod of each replica of the job.
        gone_unix_seconds: since when it has no pod here; None while it has any.
        turn: the number of the newest change to any of its pods among all changes.
    """

    failed: int = 0
    restarted: int = 0
    preempted: int = 0
    newest: dict[tuple[str, str], float] = field(default_factory=dict)
    replicas: dict[str, Occupant] = field(default_factory=dict)
    gone_unix_seconds: float | None = None
    turn: int = 0

    @property
    def eventful(self) -> bool:
        """Return True if anything happened that someone may ask about."""
        return bool(self.failed or self.restarted or self.preempted or self.newest)


class Lifecycles:
    """The jobs of a node; not thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobLife] = {}
        self._reported: frozenset[str] = frozenset()
        self._loops: dict[str, tuple[str, float]] = {}
        self._living: dict[str, str] = {}
        self._turn = 0
        self._full = False

    def take(
        self,
        job: str,
        before: Pod | None,
        pod: Pod,
        member: Membership,
        *,
        counted: bool,
        now_unix_seconds: float,
    ) -> None:
        """Process a pod that is new or has changed.

        Args:
            job: its job.
            before: the same pod as last known; None if it is new.
            pod: its current state.
            member: its membership in its job.
            counted: false for what happened before the agent's first list.
            now_unix_seconds: the time assigned to failures without one.
        """
        if looped := _loop(before, pod, now_unix_seconds):
            self._loops[pod.uid] = looped
        self._living.pop(pod.uid, None)
        if not pod.ended:
            self._living[pod.uid] = job
        life = self._life(job)
        if life is None:
            self._log_full()
            return
        self._turn += 1
        life.turn = self._turn
        for failure in _new_failures(before, pod):
            # A clock that is ahead, or a missing time, must not date it in the future.
            at = min(failure.unix_seconds or now_unix_seconds, now_unix_seconds)
            _remember(life, failure, at)
            preempted = failure.reason in pod_reasons.PREEMPTIONS
            life.preempted += counted and preempted
            life.failed += counted and not preempted
        replaces = _occupy(life, before, pod, member)
        if counted:
            life.restarted += _restarts(before, pod) + replaces

    def leave(self, uid: str) -> None:
        """Remove a pod that is gone."""
        self._loops.pop(uid, None)
        life = self._jobs.get(self._living.pop(uid, ""))
        if life is not None:
            self._turn += 1
            life.turn = self._turn

    @property
    def left_out(self) -> int:
        """Number of jobs with a running pod that have no history, because there are too many."""
        return len(set(self._living.values()) - self._jobs.keys())

    def newest_failure(self, job: str) -> float:
        """Return the Unix time of a job's newest failure or preemption; 0 if there is none."""
        life = self._jobs.get(job)
        return max(life.newest.values(), default=0.0) if life else 0.0

    def looping(self, now_unix_seconds: float) -> Mapping[str, str]:
        """Return the pods in a crash loop, by UID, with kubectl's name for it.

        Between two failures a container runs for seconds or minutes: it is in the loop all the
        same, and a scrape may never catch it during its back-off.
        """
        return {
            uid: word
            for uid, (word, at) in self._loops.items()
            if now_unix_seconds - at < LOOP_SECONDS
        }

    def settle(self, present: frozenset[str], now_unix_seconds: float) -> None:
        """Record which jobs have pods, and forget those that are no longer reported."""
        for job, life in self._jobs.items():
            if job in present:
                life.gone_unix_seconds = None
            elif life.gone_unix_seconds is None:
                life.gone_unix_seconds = now_unix_seconds
        gone = [job for job, life in self._jobs.items() if life.gone_unix_seconds is not None]
        gone.sort(key=lambda job: self._jobs[job].gone_unix_seconds or 0.0, reverse=True)
        eventful = (job for job in gone if self._is_reported(job, now_unix_seconds))
        self._reported = frozenset(choose(eventful, _namespace, MAX_GONE))
        for job in gone:
            since = self._jobs[job].gone_unix_seconds or 0.0
            if job not in self._reported and now_unix_seconds - since >= AWAITED_SECONDS:
                del self._jobs[job]
        self._full = self._full and self.left_out > 0

    def jobs(self) -> Mapping[str, JobLife]:
        """Return copies of what is reported about each job, for any thread."""
        return {
            job: replace(life, newest=dict(life.newest))
            for job, life in self._jobs.items()
            if life.gone_unix_seconds is None or job in self._reported
        }

    def _is_reported(self, job: str, now: float) -> bool:
        life = self._jobs[job]
        since = now if life.gone_unix_seconds is None else life.gone_unix_seconds
        return life.eventful and now - since < KEPT_SECONDS

    def _life(self, job: str) -> JobLife | None:
        if job not in self._jobs and len(self._jobs) >= MAX_JOBS and not self._make_room():
            return None
        return self._jobs.setdefault(job, JobLife())

    def _make_room(self) -> bool:
        """Forget a job without a running pod, one without incident first, then the first to end.

        Of those with incidents, one of the namespace with most of them.

        Returns:
            False if all jobs have a running pod.
        """
        running = set(self._living.values())
        ended = {job: life for job, life in self._jobs.items() if job not in running}
        held = Counter(namespace_of(job) for job, life in ended.items() if life.eventful)
        over = [
            (life.eventful, -held[namespace_of(job)] if life.eventful else 0, life.turn, job)
            for job, life in ended.items()
        ]
        if over:
            *_, first = min(over)
            del self._jobs[first]
        return bool(over)

    def _log_full(self) -> None:
        """Log that a job is left out, once until all jobs have a history again."""
        if not self._full:
            log.warning("pods: the history of no more than %d running jobs is kept", MAX_JOBS)
        self._full = True


def _namespace(job: str) -> Holder:
    return namespace_of(job), ""


def _new_failures(before: Pod | None, pod: Pod) -> Iterator[Failure]:
    """Yield the failures that are new; a new reason for the same end is not one."""
    known = {container.name: container.failure for container in before.containers} if before else {}
    for container in pod.containers:
        if container.failure and container.failure != known.get(container.name):
            yield container.failure
    if pod.failure and not (before and before.failure):
        yield pod.failure
    if pod.disruption and not (before and before.disruption):
        yield pod.disruption


def _loop(before: Pod | None, pod: Pod, now: float) -> tuple[str, float] | None:
    """Return a pod's crash loop and its last failure in Unix seconds; None if there is none.

    A container in back-off is in one, and so is one that has failed twice within a short time.
    """
    known = {one.name: one.failure for one in before.containers} if before else {}
    for container in pod.containers:
        failure, earlier = container.failure, known.get(container.name)
        at = min(failure.unix_seconds, now) if failure and failure.unix_seconds else now
        if container.waiting.endswith(pod_reasons.CRASH_LOOP):
            return container.waiting, at
        if failure and earlier and 0 < at - earlier.unix_seconds < LOOP_SECONDS:
            init = pod_reasons.INIT if failure.reason.startswith(pod_reasons.INIT) else ""
            return f"{init}{pod_reasons.CRASH_LOOP}", at
    return None


def _remember(life: JobLife, failure: Failure, at: float) -> None:
    key = (failure.reason, failure.detail)
    life.newest[key] = max(at, life.newest.get(key, 0.0))
    while len(life.newest) > MAX_REASONS:
        del life.newest[min(life.newest, key=life.newest.__getitem__)]


def _restarts(before: Pod | None, pod: Pod) -> int:
    known = (
        {container.name: container.restarts for container in before.containers} if before else {}
    )
    return sum(max(0, one.restarts - known.get(one.name, 0)) for one in pod.containers)


def _occupy(life: JobLife, before: Pod | None, pod: Pod, member: Membership) -> bool:
    """Make a new pod the occupant of its replica; return whether it replaced another of the job.

    The pod before it may still have events of its own, while it ends or because its Job keeps it.
    A job that is recreated under its old name is a new one, in which nothing was restarted.
    """
    replica = _replica(pod, member)
    occupant = life.replicas.get(replica)
    if occupant is not None and not _is_newer(pod, occupant, known=before is not None):
        return False
    life.replicas[replica] = Occupant(pod.uid, _maker(pod), pod.created_unix_seconds)
    if len(life.replicas) > MAX_REPLICAS:
        del life.replicas[next(iter(life.replicas))]
    return occupant is not None and occupant.maker == _maker(pod)


def _is_newer(pod: Pod, occupant: Occupant, *, known: bool) -> bool:
    """Return True if a pod was created later; within the same second, if it is seen later."""
    if pod.uid == occupant.uid:
        return False
    if pod.created_unix_seconds == occupant.created_unix_seconds:
        return not known
    return pod.created_unix_seconds > occupant.created_unix_seconds


def _replica(pod: Pod, member: Membership) -> str:
    """Return a pod's replica: its name, without the random suffix if an index is known.

    Names tell more than role and index: each group of a LeaderWorkerSet and each Job of a JobSet
    has its own pod of a given index.
    """
    return pod.name if member.index is None else _RANDOM_SUFFIX.sub("", pod.name)


def _maker(pod: Pod) -> str:
    """Return the UID of what persists across restarts of the job: the JobSet, not its Jobs."""
    return pod.labels.get(_JOBSET_UID) or (pod.owner.uid if pod.owner else "")
