"""Jobs most of whose ranks are done while the rest saves or evaluates: their end is no failure.

What ended the ranks is not in these series. Most ends are those of programs that have nothing more
to do; a failure shows in exit codes, pods, the kernel's log or the job's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.hangs.suspects import waiting
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rank_locations import by_rank

ENDING = "job_ending"

DONE_SECONDS = 60.0
"""Ranks that are done end within this time, by clocks that may differ by as much unnoticed. Ranks
that lose one of them end at once, all together, or when a watchdog gives up after ten minutes."""

REST_SECONDS = 1800.0
"""How long the rest may take: half an hour, as the first checkpoint or evaluation of a job."""

UNKNOWN_SECONDS = 300.0
"""How long it may take if nothing shows what it does: minutes are usual for a last checkpoint, and
a watchdog ends ranks that wait only after ten."""


def most_are_done(
    observed: Observed, job: JobView, alive: Mapping[int, Series], gone: Sequence[int]
) -> bool:
    """Return True if the end of some ranks looks like that of a job.

    More than half of them ended together, not long ago, and the others make no steps and do not
    wait in a collective. If it is unknown whether they wait, they have less time.

    Args:
        observed: series of the job's nodes.
        job: the job.
        alive: the states of all its ranks.
        gone: those that ended.
    """
    ended = by_rank(observed, training.RANK_ENDED, job.job_id)
    times = [ended[rank].last for rank in gone if rank in ended]
    if 2 * len(gone) <= len(alive) or len(times) < len(gone):
        return False
    rest = {rank: series for rank, series in alive.items() if rank not in gone}
    stepped = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id)
    steps = [stepped[rank].last for rank in rest if rank in stepped]
    allowed = REST_SECONDS if _is_known(observed, job, rest) else UNKNOWN_SECONDS
    now = max(float(one.times[-1]) for one in alive.values())
    return (
        max(times) - min(times) <= DONE_SECONDS
        and max(steps, default=0.0) - max(times) <= DONE_SECONDS
        and now - max(times) < allowed
        and not waiting(job.stalls)
    )


def _is_known(observed: Observed, job: JobView, rest: Mapping[int, Series]) -> bool:
    """Return True if it is seen what one of the others does: its collectives, or an open span."""
    spans = by_rank(observed, training.SPAN_BEGAN, job.job_id)
    return any(
        (rank in spans and spans[rank].times[-1] >= alive.times[-1])
        or (rank in job.stalls and not job.stalls[rank].recorder)
        for rank, alive in rest.items()
    )
