"""Totals as values for JSON, and back: what an agent leaves to the next one. Pure.

It is the agent's own file, so a job that is not as it should be is rare; it begins anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope_agent.sources.training.reported import Signal
from rankscope_agent.sources.training.reported_totals import SignalTotals
from rankscope_agent.sources.training.span_totals import SpanTotals
from rankscope_agent.sources.training.spans import SpanPosition
from rankscope_agent.sources.training.totals import Histogram, JobTotals, Position, RankTotals

OF_RANK = (
    "steps", "lost", "step_ns", "data_ns", "compute_ns", "sync_ns", "other_ns", "cpu_wait_ns",
    "samples",
)  # fmt: skip
"""What is kept of a rank's steps."""

NEVER_UNKNOWN = frozenset((
    "steps", "lost", "step_ns", "writes", "failures", "write_ns", "loads", "refused", "blocked_ns",
))  # fmt: skip
"""Totals that begin with 0 and not with None."""

OF_SPANS = (
    "writes", "failures", "write_ns", "loads", "refused", "blocked_ns", "failed_unix_ns",
    "refused_unix_ns", "last_success_unix_ns", "last_write_ns",
)  # fmt: skip
"""What is kept of a rank's checkpoints."""


@dataclass(frozen=True, slots=True)
class KeptRank:
    """A rank whose totals an earlier agent left.

    Args:
        positions: up to where its rings are in the totals.
        open: keys of the rings that were being read.
        steps: the totals of `OF_RANK`.
        shares: compute, None if unknown, and sync in the newest sample.
        spans: its checkpoints; None if it marked nothing.
        signals: what it reported; None if nothing.
        state: all of it, as in JSON.
    """

    positions: Mapping[str, Position]
    open: frozenset[str]
    steps: Mapping[str, int | None]
    shares: tuple[float | None, float]
    spans: SpanTotals | None
    signals: SignalTotals | None
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A job whose totals an earlier agent left.

    Args:
        exact: no agent has shown larger ones since.
        active_unix_seconds: when one of its processes was last known to be alive.
        ranks: by their number.
        state: all of it, as in JSON.
    """

    exact: bool
    active_unix_seconds: float
    ranks: Mapping[int, KeptRank]
    state: Mapping[str, Any]


def state_of_job(
    job: JobTotals,
    open_rings: Collection[str],
    others: Mapping[int, KeptRank],
    *,
    exact: bool,
) -> Mapping[str, Any]:
    """Return a job as values for JSON.

    Args:
        job: of this agent.
        open_rings: keys of the rings that are being read.
        others: ranks that this agent has not seen.
        exact: nothing larger is shown any more, if its rings have been read by now.
    """
    known = {str(number): _of_rank(rank, open_rings) for number, rank in job.ranks.items()}
    kept = {str(number): rank.state for number, rank in others.items()}
    return {
        "exact": exact and None in job.counted and not any(rank.open for rank in others.values()),
        "active": job.active_unix_seconds,
        "latency": [*job.latency.counts, job.latency.sum_ns],
        "sync": [*job.sync.counts, job.sync.sum_ns],
        "samples": job.samples,
        "shared_paths": job.writers.paths,
        "ranks": kept | known,
    }


def _of_rank(rank: RankTotals, open_rings: Collection[str]) -> Mapping[str, Any]:
    return {
        "steps": [getattr(rank, name) for name in OF_RANK],
        "shares": [rank.shares.compute, rank.shares.sync],
        "spans": None if rank.spans is None else _of_spans(rank.spans),
        "signals": None if rank.signals is None else _of_signals(rank.signals),
        "rings": [
            [key, key in open_rings, at.created_ns, at.seq, at.spans.newest, at.spans.open]
            for key, at in rank.positions.items()
        ],
    }


def _of_spans(spans: SpanTotals) -> Mapping[str, Any]:
    return {
        "totals": [getattr(spans, name) for name in OF_SPANS],
        "blocked": spans.blocked_by_kind_ns,
        "emergencies": spans.emergencies,
        "last_step": spans.last_step,
    }


def _of_signals(signals: SignalTotals) -> Mapping[str, Any]:
    return {
        "counts": [[created, counts] for created, counts in signals.counts.items()],
        "folded": signals.folded,
        "folded_of": sorted(signals.folded_unix_ns),
        "counted_at": signals.counted_unix_ns,
    }


def job_from(state: Mapping[str, Any]) -> KeptJob:
    """Return a job that `state_of_job` has described.

    Raises:
        KeyError, TypeError, ValueError, OverflowError, AttributeError: it is something else.
    """
    restore_job(JobTotals(), state)
    ranks = {int(number): _rank_from(rank) for number, rank in state["ranks"].items()}
    return KeptJob(bool(state["exact"]), float(state["active"]), ranks, state)


def _rank_from(state: Mapping[str, Any]) -> KeptRank:
    rings = state["rings"]
    compute, sync = state["shares"]
    return KeptRank(
        {
            str(key): Position(
                int(created), int(seq), SpanPosition(int(newest), tuple(map(int, still_open)))
            )
            for key, _, created, seq, newest, still_open in rings
        },
        frozenset(str(key) for key, is_open, *_ in rings if is_open),
        _totals(OF_RANK, state["steps"]),
        (None if compute is None else _share(compute), _share(sync)),
        _spans_from(state["spans"]),
        _signals_from(state["signals"]),
        state,
    )


def restore_job(job: JobTotals, state: Mapping[str, Any]) -> None:
    """Give a job that has just been seen the totals of an earlier agent."""
    _restore_histogram(job.latency, state["latency"])
    _restore_histogram(job.sync, state["sync"])
    job.samples, job.writers.paths = _count(state["samples"]), _count(state["shared_paths"])


def _restore_histogram(histogram: Histogram, values: Sequence[int]) -> None:
    *counts, sum_ns = map(int, values)
    if len(counts) != len(histogram.counts):
        raise ValueError(f"{len(counts)} buckets, expected {len(histogram.counts)}")
    histogram.counts, histogram.sum_ns = counts, sum_ns


def restore_rank(rank: RankTotals, kept: KeptRank) -> None:
    """Give a rank that has just been seen the totals of an earlier agent."""
    for name, value in kept.steps.items():
        setattr(rank, name, value)
    rank.shares.compute, rank.shares.sync = kept.shares
    rank.spans, rank.signals = kept.spans, kept.signals
    rank.positions = dict(kept.positions)


def _spans_from(state: Mapping[str, Any] | None) -> SpanTotals | None:
    if state is None:
        return None
    spans = SpanTotals()
    for name, value in _totals(OF_SPANS, state["totals"]).items():
        setattr(spans, name, value)
    for kind in spans.blocked_by_kind_ns:
        spans.blocked_by_kind_ns[kind] = int(state["blocked"].get(kind, 0))
    spans.emergencies = Counter({str(k): int(n) for k, n in state["emergencies"].items()})
    created, step = state["last_step"]
    spans.last_step = int(created), int(step)
    return spans


def _signals_from(state: Mapping[str, Any] | None) -> SignalTotals | None:
    if state is None:
        return None
    signals = SignalTotals()
    signals.counts = {int(created): _counts(counts) for created, counts in state["counts"]}
    signals.folded = _counts(state["folded"])
    signals.folded_unix_ns = set(map(int, state["folded_of"]))
    signals.counted_unix_ns = dict(_counts(state["counted_at"]))
    return signals


def _counts(state: Mapping[str, Any]) -> Counter[Signal]:
    return Counter({Signal(int(kind)): int(count) for kind, count in state.items()})


def _totals(names: Sequence[str], values: Sequence[float | None]) -> Mapping[str, int | None]:
    totals = {name: _count(value) for name, value in zip(names, values, strict=True)}
    if None in (totals[name] for name in NEVER_UNKNOWN & totals.keys()):
        raise ValueError("a total is missing")
    return totals


def _share(value: float) -> float:
    share = float(value)
    if not math.isfinite(share):
        raise ValueError(f"{share} is no share of a step")
    return share


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
