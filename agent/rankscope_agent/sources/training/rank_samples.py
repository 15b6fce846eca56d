"""The series of one rank: pure, from sums to values; what is None has no sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rankscope_agent.contract.metrics import reported as signs
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.training.format import NOT_MEASURED, StepRecord
from rankscope_agent.sources.training.reported import Signal
from rankscope_agent.sources.training.reported_totals import SignalTotals
from rankscope_agent.sources.training.totals import NS, RankTotals

Values = Sequence[tuple[Metric, float | None]]

STATES: Sequence[tuple[Metric, Signal]] = (
    (signs.LOSS_LEVEL, Signal.LOSS_LEVEL),
    (signs.STORE_FREE, Signal.STORE_FREE),
    (signs.STORE_SIZE, Signal.STORE_SIZE),
    (signs.CHECKPOINTS_KEPT, Signal.CHECKPOINTS_KEPT),
    (signs.LEARNING_RATE, Signal.LEARNING_RATE),
    (signs.PARAMETERS, Signal.PARAMETERS),
)
"""What the newest process says."""

HANDED_OVER: Sequence[tuple[Metric, Signal]] = (
    (signs.NONFINITE_LOSSES, Signal.NOT_FINITE),
    (signs.LOSSES, Signal.LOSSES),
)
"""Counts of what programs hand over: absent where they hand over nothing."""

EVENTS: Sequence[tuple[Metric, Signal]] = (
    (signs.SKIPPED_UPDATES, Signal.SKIPPED_UPDATES),
    (signs.DEAD_WORKERS, Signal.DEAD_WORKERS),
    (signs.CUDA_OUT_OF_MEMORY, Signal.CUDA_OUT_OF_MEMORY),
)
"""Counts that are 0 from the start, so that the first event is an increase."""


def rank_samples(labels: tuple[str, str], rank: RankTotals) -> Iterator[Sample]:
    """Yield what is known of a rank, but for where it is."""
    for values in (_totals(rank), _newest(rank.last), _writes(rank), _signals(rank.signals)):
        for metric, value in values:
            if value is not None:
                yield Sample(metric, labels, value)
    if rank.spans:
        for kind, began in rank.spans.began_unix_ns.items():
            yield Sample(metrics.SPAN_BEGAN, (*labels, kind), began / NS)
        for outcome, count in rank.spans.emergencies.items():
            yield Sample(signs.CHECKPOINT_EMERGENCY, (*labels, outcome), count)


def _totals(rank: RankTotals) -> Values:
    return (
        (metrics.RANK_ALIVE, int(rank.alive)),
        (metrics.RANK_ENDED, rank.ended_unix_seconds),
        (metrics.RECORDS_LOST, rank.lost),
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
