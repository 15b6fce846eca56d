"""Who gets how much of what is bounded: nobody more than others want, while they lack it."""

from __future__ import annotations

from collections.abc import Collection, Set

from rankscope_agent.sources.training.totals import JobTotals, RankTotals

Rank = tuple[str, int]


def fair_share(wanted: Collection[int], available: int) -> int:
    """Return the most that one holder may have: all there is, unless others lack some of it.

    Holders who want less get what they want, and what they leave goes to the others (max-min
    fairness). At least 1, where there are more holders than places.

    Args:
        wanted: how much each holder could use.
        available: how much there is.
    """
    left, holders = available, len(wanted)
    for want in sorted(wanted):
        if want * holders > left:
            return max(1, left // holders)
        left -= want
        holders -= 1
    return available


def forget_ranks(jobs: dict[str, JobTotals], open_ranks: Set[Rank], excess: int) -> None:
    """Drop ranks without an open ring: of the job that has most of them, those that ended first.

    A job that loses its last rank goes. Of two jobs with equally many, the one that ended first is
    charged.

    Args:
        jobs: what is known of each job; changed in place.
        open_ranks: job and number of the ranks whose ring is open, which all stay.
        excess: how many ranks too many there are.
    """
    closed = {
        job_id: [number for number in job.ranks if (job_id, number) not in open_ranks]
        for job_id, job in jobs.items()
    }
    while excess > 0 and any(closed.values()):
        charged = max(closed, key=lambda name: (len(closed[name]), -jobs[name].active_unix_seconds))
        ranks = jobs[charged].ranks
        first = min(closed[charged], key=lambda number: _last_seen(ranks[number]))
        closed[charged].remove(first)
        del ranks[first]
        excess -= 1
        if not ranks:
            del jobs[charged], closed[charged]


def _last_seen(rank: RankTotals) -> int:
    """Return when a rank's newest step began, or its process, in nanoseconds of Unix time."""
    return rank.last.start_unix_ns if rank.last else rank.created_unix_ns
