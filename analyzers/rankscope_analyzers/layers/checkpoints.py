"""Whether a job would survive a failure now: its checkpoints, as probes mark them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rankscope_agent.contract.metrics import reported, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import training_events
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.layers.training_events import event_finding, recent_event, survivable
from rankscope_analyzers.text.wording import age, value

READS: tuple[Metric, ...] = (
    *training_events.READS,
    training.RANK_ALIVE,
    training.LAST_STEP,
    training.STEP_SECONDS,
    training.CHECKPOINT_LAST_SUCCESS,
    training.CHECKPOINT_BLOCKED,
    reported.CHECKPOINT_STEP,
    reported.CHECKPOINT_OBJECTIVE,
    reported.STORE_FREE,
    reported.STORE_SIZE,
)

FAILED, NOT_LOADED = "checkpoint_failed", "checkpoint_not_loaded"
OVERWRITTEN, OVERDUE = "checkpoint_overwritten", "checkpoint_overdue"
STORE_FULL, SHARE = "checkpoint_store_full", "checkpoint_share"
KINDS = frozenset((FAILED, NOT_LOADED, OVERWRITTEN, OVERDUE, STORE_FULL, SHARE))

LEAST_FREE = 0.05
"""Fraction of a file system, as in the alert: what is left is a few checkpoints, or less than
one."""

FALLING_FREE, SOON_SECONDS = 0.3, 86_400.0
"""As in the alert: below this fraction the trend is considered, and a day is enough to free
space."""

PACE_SECONDS = 3600.0
"""Seconds of readings that a trend requires: checkpoints come and go within ten minutes to an
hour."""

LARGE_SHARE = 0.25
"""Fraction of the time of steps: saving as often as Young's interval requires takes a few per cent.
From a tenth on the report mentions it."""

FEWEST_SECONDS = 120.0
"""Seconds of steps before a share of them is reported: the first checkpoint comes soon after the
start."""

WINDOW_SECONDS = 600.0
"""Seconds of steps from which on the share is that of the observed time, else that of the run."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what prevents the job from continuing after a failure, or costs too much."""
    yield from _failed(observed, job)
    yield from _not_loaded(observed, job)
    yield from _overwritten(observed, job)
    yield from _overdue(observed, job)
    yield from _store_full(observed, job)
    yield from _large_share(observed, job)


def _failed(observed: Observed, job: JobView) -> Iterator[Finding]:
    failed = recent_event(observed, job.job_id, "checkpoint_write_failed")
    if failed is None:
        return
    good = by_rank(observed, training.CHECKPOINT_LAST_SUCCESS, job.job_id)
    since = [good[rank].last for rank in failed.ranks if rank in good]
    recovered = len(since) == len(failed.ranks) and min(since) > failed.newest
    sentence = f"{failed.who} failed to write a checkpoint at {failed.at}"
    if recovered:
        sentence += "; a later one was written"
    else:
        sentence += f", {_at_stake(observed, job, good)}"
    yield event_finding(FAILED, job.job_id, failed, sentence, min(since) if recovered else None)


def _at_stake(observed: Observed, job: JobView, good: Mapping[int, Series]) -> str:
    """Describe what a failure of the job would cost now."""
    if not good:
        return "and none has been written yet"
    newest = max(good.values(), key=lambda series: series.last)
    ago = f"the last good one is {age(float(newest.times[-1]) - newest.last)} old"
    saved = by_rank(observed, reported.CHECKPOINT_STEP, job.job_id)
    steps = by_rank(observed, training.LAST_STEP, job.job_id)
    lost = [steps[rank].last - saved[rank].last for rank in saved if rank in steps]
    if not lost:
        return ago
    return f"{ago}: {max(min(lost), 0):.0f} steps would be lost now"


def _not_loaded(observed: Observed, job: JobView) -> Iterator[Finding]:
    what = "could not load a checkpoint that is there,"
    yield from survivable(observed, job.job_id, "checkpoint_load_failed", NOT_LOADED, what)


def _overwritten(observed: Observed, job: JobView) -> Iterator[Finding]:
    shared = recent_event(observed, job.job_id, "checkpoint_path_shared")
    if shared is not None:
        sentence = (
            f"{shared.who} wrote a checkpoint file that another rank wrote as well, last at"
            f" {shared.at}: who comes last decides what is in it"
        )
        yield event_finding(OVERWRITTEN, job.job_id, shared, sentence, None)


def _overdue(observed: Observed, job: JobView) -> Iterator[Finding]:
    objective = min((s.last for s in observed.of(reported.CHECKPOINT_OBJECTIVE)), default=0.0)
    good = by_rank(observed, training.CHECKPOINT_LAST_SUCCESS, job.job_id)
    alive = by_rank(observed, training.RANK_ALIVE, job.job_id)
    if not (objective and good and any(series.last for series in alive.values())):
        return
    newest = max(good.values(), key=lambda series: series.last)
    old = float(newest.times[-1]) - newest.last
    if old <= objective:
        return
    sentence = (
        f"the newest checkpoint is {age(old)} old, more than the {age(objective)} that were asked"
        f" for: {_at_stake(observed, job, good)}"
    )
    evidence = Evidence(newest.name, old, objective, "seconds", sentence)
    due = newest.last + objective
    yield series_finding(OVERDUE, "signals", job.job_id, Where(), sentence, (evidence,), due)


def _store_full(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the store that is full, or will be first at the observed rate."""
    free = by_rank(observed, reported.STORE_FREE, job.job_id)
    sizes = by_rank(observed, reported.STORE_SIZE, job.job_id)
    known = [
        (series.last / sizes[rank].last, rank)
        for rank, series in free.items()
        if rank in sizes and sizes[rank].last > 0
    ]
    share, rank = min(known, default=(1.0, -1))
    left = _seconds_left(free[rank]) if share < FALLING_FREE else None
    if share >= LEAST_FREE and (left is None or left > SOON_SECONDS):
        return
    room, size = value(free[rank].last, "bytes"), value(sizes[rank].last, "bytes")
    sentence = (
        f"the file system to which rank {rank} writes checkpoints has {room} of {size} left"
        f" ({share:.1%})"
    )
    if left is not None:
        sentence += f", and at the present pace is full in {age(left)}"
    evidence = Evidence(free[rank].name, share, LEAST_FREE, "ratio", sentence)
    where = Where(nodes=(free[rank].node,), ranks=(rank,))
    yield series_finding(STORE_FULL, "signals", job.job_id, where, sentence, (evidence,))


def _seconds_left(free: Series) -> float | None:
    """Return when a store is full if it keeps filling, None if it does not or not for long."""
    if free.seconds < PACE_SECONDS:
        return None
    slope = float(np.polyfit(free.times - free.times[-1], free.values, 1)[0])
    return free.last / -slope if slope < 0 else None


def _large_share(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield how much of its time a job saves, by the rank that saves longest: the others wait."""
    blocked = by_rank(observed, training.CHECKPOINT_BLOCKED, job.job_id)
    steps = by_rank(observed, training.STEP_SECONDS, job.job_id)
    shares = [
        (share, rank)
        for rank, series in blocked.items()
        if rank in steps and (share := _share(series, steps[rank])) is not None
    ]
    share, rank = max(shares, default=(0.0, -1))
    if share < LARGE_SHARE:
        return
    sentence = f"checkpoints take {share:.0%} of the time: no step ends while rank {rank} saves"
    evidence = Evidence(blocked[rank].name, share, LARGE_SHARE, "ratio", sentence)
    where = Where(nodes=(blocked[rank].node,), ranks=(rank,))
    yield series_finding(SHARE, "signals", job.job_id, where, sentence, (evidence,))


def _share(blocked: Series, steps: Series) -> float | None:
    """Return the fraction of its steps that a rank spent saving, None if they are too few."""
    lately = steps.increase()
    if lately >= WINDOW_SECONDS:
        return min(blocked.increase() / lately, 1.0)
    return min(blocked.last / steps.last, 1.0) if steps.last >= FEWEST_SECONDS else None
