"""The series about the state of jobs, from their pods on this node and their history; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.metrics import job_status as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.pods.lifecycles import JobLife
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.placement import PlacedRank
from rankscope_agent.sources.pods.records import Pod

Members = Sequence[tuple[Pod, Membership]]
"""The pods of a job on this node, oldest first."""


def waiting_reason(pod: Pod, loop: str = "") -> str:
    """Return why not all containers of a pod run, in one word; empty if they do or have ended.

    What keeps init containers from running also keeps the others from running. A pod in a crash
    loop counts as waiting even while its containers run briefly.

    Args:
        pod: the pod.
        loop: kubectl's name for its crash loop; empty if it is in none.
    """
    if pod.ended or pod.deleting:
        return ""
    reasons = [container.waiting for container in pod.containers if container.waiting]
    faults = [reason for reason in reasons if reason not in pod_reasons.STARTING]
    init = [reason for reason in faults if reason.startswith(pod_reasons.INIT)]
    return next(iter((*init, *faults, *([loop] if loop else ()), *reasons)), "")


def status_samples(
    jobs: Mapping[str, Members],
    loops: Mapping[str, str],
    ranks: Sequence[PlacedRank],
    probed_attempts: Mapping[str, int],
) -> Iterator[Sample]:
    """Yield the state of each job, from present pods and processes.

    Args:
        jobs: the pods of each job.
        loops: pods in a crash loop, by UID.
        ranks: those whose processes are visible.
        probed_attempts: restarts by torchrun according to the ranks' probes.
    """
    attempts = {**_torchrun_attempts(ranks), **probed_attempts}
    for job, members in jobs.items():
        reasons = (waiting_reason(pod, loops.get(pod.uid, "")) for pod, _ in members)
        waiting = Counter(reason for reason in reasons if reason)
        for reason, count in waiting.items():
            yield metrics.JOB_WAITING_PODS.sample(count, job_id=job, reason=reason)
        live = [(pod, member) for pod, member in members if not pod.ended]
        if live:
            restarts = sum(one.restarts for pod, _ in live for one in pod.containers)
            yield metrics.JOB_CONTAINER_RESTARTS.sample(restarts, job_id=job)
            yield from _attempts(job, live, attempts.get(job))
            yield from _elastic(job, live)


def life_samples(lives: Mapping[str, JobLife], running: frozenset[str]) -> Iterator[Sample]:
    """Yield the counts of each job; nothing for jobs that completed without incident.

    Args:
        lives: the history by job.
        running: jobs with a pod that has not ended.
    """
    for job, life in lives.items():
        if job in running or life.eventful:
            yield metrics.JOB_FAILURES.sample(life.failed, job_id=job)
            yield metrics.JOB_RESTARTS.sample(life.restarted, job_id=job)
            yield metrics.JOB_PREEMPTIONS.sample(life.preempted, job_id=job)
        for (reason, detail), at in life.newest.items():
            yield metrics.JOB_LAST_FAILURE.sample(at, job_id=job, reason=reason, detail=detail)


def _torchrun_attempts(ranks: Sequence[PlacedRank]) -> Mapping[str, int]:
    """Return restarts by torchrun, if any rank reports them."""
    found: dict[str, int] = {}
    for rank in ranks:
        identity = rank.process.identity
        if identity.launcher == "torchrun":
            found[rank.job_id] = max(identity.attempt, found.get(rank.job_id, 0))
    return found


def _attempts(job: str, members: Members, by_torchrun: int | None) -> Iterator[Sample]:
    labelled = [member.attempt for _, member in members if member.attempt is not None]
    if labelled:
        yield metrics.JOB_ATTEMPT.sample(max(labelled), job_id=job, source="launcher")
    if by_torchrun is None:
        return
    yield metrics.JOB_ATTEMPT.sample(by_torchrun, job_id=job, source="torchrun")
    limits = [member.max_restarts for _, member in members if member.max_restarts is not None]
    if limits:
        left = max(0, min(limits) - by_torchrun)
        yield metrics.JOB_RESTARTS_LEFT.sample(left, job_id=job)


def _elastic(job: str, members: Members) -> Iterator[Sample]:
    ranges = [member.elastic_pods for _, member in members if member.elastic_pods]
    for bound, pods in zip(("min", "max"), ranges[-1] if ranges else (), strict=False):
        yield metrics.JOB_ELASTIC_PODS.sample(pods, job_id=job, bound=bound)
