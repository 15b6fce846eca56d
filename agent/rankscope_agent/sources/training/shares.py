"""What is dropped: most of what there is too much of, and ranks that are of another job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Set

from rankscope_agent.contract.job_names import namespace_of
from rankscope_agent.sources.training.totals import JobTotals, RankTotals

Rank = tuple[str, int]


def forget_ranks(jobs: dict[str, JobTotals], open_ranks: Set[Rank], excess: int) -> None:
    """Drop ranks without an open ring, of the job with most of them, those that ended first.

    The job is one of the namespace with most ranks. A job that loses its last rank is dropped; of
    two jobs with equally many, the one that ended first is charged.

    Args:
        jobs: what is known about each job; changed in place.
        open_ranks: job and number of the ranks whose ring is open; all of them stay.
        excess: how many ranks are too many.
    """
    closed = {
        job_id: [number for number in job.ranks if (job_id, number) not in open_ranks]
        for job_id, job in jobs.items()
    }
    of_namespaces: Counter[str] = Counter()
    for job_id, numbers in closed.items():
        of_namespaces[namespace_of(job_id)] += len(numbers)

    def weight(job_id: str) -> tuple[int, int, float]:
        held = of_namespaces[namespace_of(job_id)]
        return held, len(closed[job_id]), -jobs[job_id].active_unix_seconds

    while excess > 0 and any(closed.values()):
        charged = max((job_id for job_id in closed if closed[job_id]), key=weight)
        ranks = jobs[charged].ranks
        first = min(closed[charged], key=lambda number: _last_seen(ranks[number]))
        closed[charged].remove(first)
        of_namespaces[namespace_of(charged)] -= 1
        del ranks[first]
        excess -= 1
        if not ranks:
            del jobs[charged], closed[charged]


def forget_pod(jobs: dict[str, JobTotals], pod_uid: str, job_id: str) -> bool:
    """Drop a pod's ranks from a job that it is no part of; return whether the job had no others."""
    job = jobs.get(job_id)
    if job is None:
        return False
    job.ranks = {n: rank for n, rank in job.ranks.items() if rank.identity.pod_uid != pod_uid}
    if not job.ranks:
        del jobs[job_id]
    return not job.ranks


def largest_jobs(sizes: Mapping[str, int], excess: int) -> frozenset[str]:
    """Return the jobs to leave out so that the sum of their sizes falls by an excess.

    They are the largest of the namespace that takes most, so that none suffers for another's.
    """
    of_namespaces: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for job_id in sorted(sizes, key=lambda job_id: (sizes[job_id], job_id)):
        of_namespaces[namespace_of(job_id)].append((sizes[job_id], job_id))
    taken = {name: sum(size for size, _ in held) for name, held in of_namespaces.items()}
    left_out = set()
    while excess > 0 and taken:
        charged = max(taken, key=lambda name: taken[name])
        size, job_id = of_namespaces[charged].pop()
        left_out.add(job_id)
        excess -= size
        taken[charged] -= size
        if not of_namespaces[charged]:
            del taken[charged]
    return frozenset(left_out)


def _last_seen(rank: RankTotals) -> int:
    """Return when a rank's newest step or its process began, in nanoseconds of Unix time."""
    return rank.last.start_unix_ns if rank.last else rank.created_unix_ns
