"""The series of ranks and of jobs: pure, from sums to values; None has no sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rankscope_agent.contract.metrics import reported as signs
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.training.format import NOT_MEASURED, StepRecord
from rankscope_agent.sources.training.reported import SHARD_NAMES, Signal
from rankscope_agent.sources.training.reported_totals import SignalTotals
from rankscope_agent.sources.training.span_totals import SpanTotals
from rankscope_agent.sources.training.totals import NS, JobTotals, RankTotals

Values = Sequence[tuple[Metric, float | None]]

STATES: Sequence[tuple[Metric, Signal]] = (
    (signs.LOSS_LEVEL, Signal.LOSS_LEVEL),
    (signs.STORE_FREE, Signal.STORE_FREE),
    (signs.STORE_SIZE, Signal.STORE_SIZE),
    (signs.CHECKPOINTS_KEPT, Signal.CHECKPOINTS_KEPT),
    (signs.LEARNING_RATE, Signal.LEARNING_RATE),
    (signs.PARAMETERS, Signal.PARAMETERS),
)
"""Values reported by the newest process."""

HANDED_OVER: Sequence[tuple[Metric, Signal]] = (
    (signs.NONFINITE_LOSSES, Signal.NOT_FINITE),
    (signs.LOSSES, Signal.LOSSES),
)
"""Counts reported by programs: absent if they report nothing."""

EVENTS: Sequence[tuple[Metric, Signal]] = (
    (signs.SKIPPED_UPDATES, Signal.SKIPPED_UPDATES),
    (signs.DEAD_WORKERS, Signal.DEAD_WORKERS),
    (signs.CUDA_OUT_OF_MEMORY, Signal.CUDA_OUT_OF_MEMORY),
)
"""Counts that are 0 from the start, so that the first event is an increase."""


COUNTED: Mapping[str, Signal] = {
    "loss_not_finite": Signal.NOT_FINITE,
    "loader_worker_died": Signal.DEAD_WORKERS,
    "cuda_out_of_memory": Signal.CUDA_OUT_OF_MEMORY,
}
"""Events of `TRAINING_EVENT` that are counted by signals."""


def rank_samples(labels: tuple[str, str], rank: RankTotals, *, counted: bool) -> Iterator[Sample]:
    """Yield what is known about a rank, except for its location.

    Args:
        labels: of its series.
        rank: what is known.
        counted: its totals are complete; else they are left out.
    """
    totals = _totals(rank) if counted else ()
    for values in (_state(rank), totals, _newest(rank.last), _writes(rank), _signals(rank.signals)):
        for metric, value in values:
            if value is not None:
                yield Sample(metric, labels, value)
    if rank.spans:
        yield from _by_kind(labels, rank.spans)
    for event, unix_ns in _events(rank):
        if unix_ns is not None:
            yield Sample(signs.TRAINING_EVENT, (*labels, event), unix_ns / NS)
    if rank.signals:
        yield from _where_not_finite(labels, rank.signals)
    for quantity, ratio in rank.restarts.known().items():
        yield Sample(signs.RESTART_RATIO, (*labels, quantity), ratio)


def _by_kind(labels: tuple[str, str], spans: SpanTotals) -> Iterator[Sample]:
    for kind, began in spans.began_unix_ns.items():
        yield Sample(metrics.SPAN_BEGAN, (*labels, kind), began / NS)
    for kind, blocked_ns in spans.blocked_by_kind_ns.items():
        yield Sample(metrics.SPAN_BLOCKED, (*labels, kind), blocked_ns / NS)
    for outcome, count in spans.emergencies.items():
        yield Sample(signs.CHECKPOINT_EMERGENCY, (*labels, outcome), count)


def _where_not_finite(labels: tuple[str, str], signals: SignalTotals) -> Iterator[Sample]:
    """Yield where losses became infinite or NaN, and what was read there."""
    where = signals.where_not_finite
    for metric, signal in (
        (signs.NONFINITE_LOSS_STEP, Signal.NOT_FINITE_SINCE),
        (signs.NONFINITE_LOSS_SHARDS, Signal.SHARDS),
    ):
        if signal in where:
            yield Sample(metric, labels, where[signal].value)
    for position, signal in enumerate(SHARD_NAMES, 1):
        if signal in where:
            yield Sample(signs.NONFINITE_LOSS_SHARD, (*labels, str(position)), where[signal].value)


def _events(rank: RankTotals) -> Iterator[tuple[str, int | None]]:
    """Yield when each kind of event last occurred."""
    yield "restarted", rank.restarts.at_unix_ns
    yield "checkpoint_path_shared", rank.shared_unix_ns
    if rank.spans:
        yield "checkpoint_write_failed", rank.spans.failed_unix_ns
        yield "checkpoint_load_failed", rank.spans.refused_unix_ns
    if rank.signals:
        for event, signal in COUNTED.items():
            yield event, rank.signals.counted_unix_ns.get(signal)


def _state(rank: RankTotals) -> Values:
    return (
        (metrics.RANK_ALIVE, None if rank.alive is None else int(rank.alive)),
        (metrics.RANK_ENDED, rank.ended_unix_seconds),
        (metrics.RECORDS_LOST, rank.lost),
    )


def _totals(rank: RankTotals) -> Values:
    return (
        (metrics.STEPS, rank.steps),
        (metrics.STEP_SECONDS, rank.step_ns / NS),
        (metrics.DATA_SECONDS, _seconds(rank.data_ns)),
        (metrics.COMPUTE_SECONDS, _seconds(rank.compute_ns)),
        (metrics.SYNC_SECONDS, _seconds(rank.sync_ns)),
        (metrics.OTHER_SECONDS, _seconds(rank.other_ns)),
        (metrics.CPU_WAIT_SECONDS, _seconds(rank.cpu_wait_ns)),
        (metrics.SAMPLES, rank.samples),
    )


def _writes(rank: RankTotals) -> Values:
    spans = rank.spans
    if spans is None:
        return ()
    last = spans.last_success_unix_ns
    loads = (signs.CHECKPOINT_LOADS, spans.loads), (signs.CHECKPOINT_LOAD_FAILURES, spans.refused)
    return (
        (metrics.CHECKPOINT_WRITES, spans.writes),
        (metrics.CHECKPOINT_WRITE_FAILURES, spans.failures),
        (metrics.CHECKPOINT_WRITE_SECONDS, spans.write_ns / NS),
        (metrics.CHECKPOINT_BLOCKED, spans.blocked_ns / NS),
        (metrics.CHECKPOINT_LAST_SUCCESS, None if last is None else last / NS),
        (metrics.CHECKPOINT_LAST_WRITE, _seconds(spans.last_write_ns)),
        (signs.CHECKPOINT_STEP, spans.last_success_step(rank.created_unix_ns)),
        *loads,
    )


def _signals(signals: SignalTotals | None) -> Values:
    if signals is None:
        return ()
    loss = signals.value(Signal.LOSS)
    return (
        (signs.LOSS, loss if loss is not None and math.isfinite(loss) else None),
        (signs.LOSS_BEFORE_RESTART, signals.level_before),
        (signs.LOSS_LOWEST, signals.lowest_level),
        *((metric, signals.value(signal)) for metric, signal in STATES),
        *((metric, float(signals.count(signal))) for metric, signal in EVENTS),
        *((metric, _handed_over(signals, signal)) for metric, signal in HANDED_OVER),
        (signs.TOKENS, signals.count(Signal.TOKENS) or None),
    )


def _handed_over(signals: SignalTotals, signal: Signal) -> float | None:
    return float(signals.count(signal)) if signals.count(Signal.LOSSES) else None


def _newest(record: StepRecord | None) -> Values:
    if record is None:
        return ()
    return (
        (metrics.LAST_STEP, record.step),
        (metrics.LAST_STEP_TIMESTAMP, (record.start_unix_ns + record.step_ns) / NS),
        (metrics.LAST_STEP_SECONDS, record.step_ns / NS),
        (metrics.LAST_DATA_SECONDS, _seconds(record.data_ns)),
        (metrics.LAST_COMPUTE_SECONDS, _seconds(record.compute_ns)),
    )


def _seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None or duration_ns == NOT_MEASURED else duration_ns / NS


def job_totals(job_id: str, job: JobTotals) -> Iterator[Sample]:
    """Yield the totals of all ranks of a job together."""
    yield metrics.STEP_LATENCY.sample(job.latency.value(), job_id=job_id)
    sync = job.sync.value()
    if sync.count:
        yield metrics.SYNC_TIME.sample(sync, job_id=job_id)
    if job.samples is not None:
        yield metrics.JOB_SAMPLES.sample(job.samples, job_id=job_id)
