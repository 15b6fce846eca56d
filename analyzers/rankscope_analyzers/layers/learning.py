"""Whether a job learns: its losses, what a restart changed, and reports on input and memory.

All of this comes from the ranks' probes, most of it only if the program reports it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import loss_input, training_events
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.layers.training_events import event_finding, recent_event, survivable

READS: tuple[Metric, ...] = (
    *training_events.READS,
    *loss_input.READS,
    reported.LOSS,
    reported.LOSS_LEVEL,
    reported.LOSS_LOWEST,
    reported.LOSS_BEFORE_RESTART,
    reported.RESTART_RATIO,
)

NOT_FINITE, DIVERGING, JUMP = "loss_not_finite", "loss_diverging", "loss_jump"
RATE_CHANGED, BATCH_CHANGED = "learning_rate_changed", "batch_changed"
WORKER_DIED, OUT_OF_MEMORY = "loader_worker_died", "cuda_out_of_memory"
KINDS = frozenset(
    (NOT_FINITE, DIVERGING, JUMP, RATE_CHANGED, BATCH_CHANGED, WORKER_DIED, OUT_OF_MEMORY)
)

DIVERGED = 2.0
"""Times the lowest level, as in the alert: losses fall, or move by a few tens of per cent."""

JUMPED = 1.5
"""Times the level before the restart, as in the alert."""

RATE_FACTOR, RATE_FACTOR_RESIZED = 1.5, 1.1
"""Ratio of learning rates from which on a restart's change is reported, in either direction.
Schedules resume where they were, except for the steps since the checkpoint; if the number of ranks
changed, a job that scales the rate with it changes it by more than a tenth up to ten ranks."""

BATCH_FACTOR = 1.02
"""Ratio of global batches likewise: one rank of fifty more or fewer."""

NEWS_SECONDS = 6 * 3600.0
"""Seconds since the restart: if the job has trained on for longer, the change is accepted."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what is wrong with a job's losses, and events of its input and memory."""
    yield from _not_finite(observed, job)
    yield from _diverging(observed, job)
    yield from _jump(observed, job)
    yield from _changed(observed, job)
    for kind, what in (
        (WORKER_DIED, "lost loader workers"),
        (OUT_OF_MEMORY, "had no CUDA memory left"),
    ):
        yield from survivable(observed, job.job_id, kind, kind, what)


def _not_finite(observed: Observed, job: JobView) -> Iterator[Finding]:
    seen = recent_event(observed, job.job_id, NOT_FINITE)
    if seen is None:
        return
    finite = by_rank(observed, reported.LOSS, job.job_id)
    over = all(_is_finite_again(finite, event) for event in seen.series)
    sentence = f"the loss of {seen.who} was infinite or NaN at {seen.at}"
    sentence += ", and is finite again" if over else " and is not finite now"
    began = loss_input.began(observed, job.job_id, seen.ranks)
    sentence += "" if began is None else f"; {began}"
    yield event_finding(NOT_FINITE, job.job_id, seen, sentence, seen.newest if over else None)


def _is_finite_again(finite: Mapping[int, Series], event: Series) -> bool:
    """Return True if a rank has a loss on the page with the event: pages show finite ones only."""
    loss = finite.get(int(event.labels["rank"]))
    return loss is not None and bool(loss.times[-1] >= event.times[-1])


def _diverging(observed: Observed, job: JobView) -> Iterator[Finding]:
    worst = _worst(observed, job, reported.LOSS_LOWEST)
    if worst is None or worst[0] <= DIVERGED:
        return
    ratio, level, lowest = worst
    sentence = (
        f"the loss is {level:.4g}, {ratio:.1f} times its lowest ({lowest:.4g}) since the process"
        " began: training diverges"
    )
    evidence = Evidence(reported.LOSS_LEVEL.name, level, lowest, "", sentence)
    yield series_finding(DIVERGING, "signals", job.job_id, Where(), sentence, (evidence,))


def _jump(observed: Observed, job: JobView) -> Iterator[Finding]:
    worst = _worst(observed, job, reported.LOSS_BEFORE_RESTART)
    if worst is None or worst[0] <= JUMPED:
        return
    ratio, level, before = worst
    sentence = (
        f"the loss is {level:.4g}, {ratio:.2f} times what it was ({before:.4g}) when the process"
        " before this one ended: it resumed from an older checkpoint, or without part of its state"
    )
    evidence = Evidence(reported.LOSS_LEVEL.name, level, before, "", sentence)
    since = _restarted(observed, job)
    yield series_finding(JUMP, "signals", job.job_id, Where(), sentence, (evidence,), since)


def _worst(
    observed: Observed, job: JobView, reference: Metric
) -> tuple[float, float, float] | None:
    """Return the largest ratio of a loss's level to its reference, and both of them."""
    compared = by_rank(observed, reference, job.job_id)
    ratios = [
        (series.last / compared[rank].last, series.last, compared[rank].last)
        for rank, series in by_rank(observed, reported.LOSS_LEVEL, job.job_id).items()
        if rank in compared and compared[rank].last > 0
    ]
    return max(ratios, default=None)


def _restarted(observed: Observed, job: JobView) -> float | None:
    """Return when the newest processes of a job's ranks began, None if there were none before."""
    found = observed.of(reported.TRAINING_EVENT, job_id=job.job_id, event="restarted")
    times = [series.last for series in found if series.times[-1] - series.last < NEWS_SECONDS]
    return min(times, default=None)


def _changed(observed: Observed, job: JobView) -> Iterator[Finding]:
    since = _restarted(observed, job)
    if since is None:
        return
    rate = _ratio(observed, job, "learning_rate")
    ranks = _ratio(observed, job, "world_size")
    batch = _ratio(observed, job, "batch_samples")
    if ranks is not None and batch is not None and _differs(ranks * batch, BATCH_FACTOR):
        sentence = (
            f"the global batch is {ranks * batch:.3g} times what it was before the restart, with"
            f" {ranks:.3g} times the ranks"
        )
        if rate is not None and not _differs(rate, RATE_FACTOR_RESIZED):
            sentence += "; the learning rate is as before"
        yield _of_restart(BATCH_CHANGED, job, sentence, ranks * batch, since)
    resized = ranks is not None and ranks != 1
    if rate is not None and _differs(rate, RATE_FACTOR_RESIZED if resized else RATE_FACTOR):
        sentence = f"the learning rate is {rate:.3g} times what it was before the restart"
        yield _of_restart(RATE_CHANGED, job, sentence, rate, since)


def _of_restart(
    kind: str, job: JobView, sentence: str, ratio: float, since: float | None
) -> Finding:
    evidence = Evidence(reported.RESTART_RATIO.name, ratio, 1.0, "ratio", sentence)
    return series_finding(kind, "signals", job.job_id, Where(), sentence, (evidence,), since)


def _ratio(observed: Observed, job: JobView, quantity: str) -> float | None:
    """Return the median over ranks of what a restart changed, None if unknown."""
    found = observed.of(reported.RESTART_RATIO, job_id=job.job_id, quantity=quantity)
    known = [series.last for series in found]
    return median(known) if known else None


def _differs(ratio: float, factor: float) -> bool:
    return ratio > factor or ratio < 1 / factor
