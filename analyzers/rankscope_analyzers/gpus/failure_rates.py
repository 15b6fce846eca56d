"""Failure rates per 1,000 GPU-hours, compared with published training runs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.gpus.errors import TimedSeries
from rankscope_analyzers.gpus.failure_kinds import (
    ENDS_WORK,
    GPU_KINDS,
    NODE_KINDS,
    THOUSAND,
    NodeKind,
    published_rate,
)
from rankscope_analyzers.gpus.xid_incidents import XidIncident
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.poisson import interval

ONE_FAILURE_SECONDS = 3600.0
"""Events of one kind on one node, or of one job, less than this apart are one failure: a failing
disk reports it a hundred times."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Failures of one kind.

    Args:
        per_thousand_gpu_hours: None if the GPU-hours are unknown.
        low_per_thousand_gpu_hours: the lowest rate consistent with the count, at 95 % confidence.
        high_per_thousand_gpu_hours: the highest one.
        published_per_thousand_gpu_hours: the paper's count over its GPU-hours, None if it has none
            of this kind.
        expected: number of failures at the paper's rate in this time, None likewise.
    """

    name: str
    count: int
    per_thousand_gpu_hours: float | None
    low_per_thousand_gpu_hours: float | None
    high_per_thousand_gpu_hours: float | None
    published_per_thousand_gpu_hours: float | None
    expected: float | None


def rates(
    findings: Iterable[XidIncident], nodes: Iterable[TimedSeries] | None, gpu_hours: float | None
) -> tuple[Rate, ...]:
    """Return failures of each kind per 1,000 GPU-hours.

    Args:
        findings: of GPUs.
        nodes: counters of `NODE_KINDS`, and others of the same nodes that show since when these
            were read; None leaves out what they count.
        gpu_hours: over which failures would have been seen.
    """
    known = tuple(findings)
    counts = {
        (kind.name, kind.published): sum(
            one.cause in kind.causes and one.fatality in ENDS_WORK for one in known
        )
        for kind in GPU_KINDS
    }
    if nodes is not None:
        series = [one for one in nodes if len(one.times)]
        counts |= {(kind.name, kind.published): failures(kind, series) for kind in NODE_KINDS}
    return tuple(
        _rate(name, count, published, gpu_hours) for (name, published), count in counts.items()
    )


def failures(kind: NodeKind, series: Sequence[TimedSeries]) -> int:
    """Return how many failures of a kind the series of some nodes show."""
    since: dict[str, float] = {}
    for one in series:
        since[one.node] = min(float(one.times[0]), since.get(one.node, np.inf))
    grown: Mapping[str, list[Floats]] = defaultdict(list)
    for one in series:
        if one.name == kind.counter.name and _is_of(kind, one):
            subject = one.labels.get(kind.subject, one.node)
            grown[subject].append(_growth(one, since[one.node]))
    return sum(_apart(np.sort(np.concatenate(times))) for times in grown.values())


def _is_of(kind: NodeKind, series: TimedSeries) -> bool:
    return not kind.label or series.labels.get(kind.label) in kind.values


def _growth(series: TimedSeries, since: float) -> Floats:
    """Return the times at which a counter was seen to have increased.

    One that falls was restarted by an agent that reads old logs again, which is no failure. One
    that starts with a value, on a node that has been known for longer, is one.
    """
    times = series.times[1:][np.diff(series.values) > 0]
    born = series.times[:1][(series.values[:1] > 0) & (series.times[:1] > since)]
    return np.concatenate((born, times))


def _apart(times: Floats) -> int:
    """Return how many groups ascending times form."""
    return int(np.count_nonzero(np.diff(times) >= ONE_FAILURE_SECONDS)) + bool(len(times))


def _rate(name: str, count: int, published: int | None, gpu_hours: float | None) -> Rate:
    low, high = interval(count)
    rate, least, most = (
        number / gpu_hours * THOUSAND if gpu_hours else None for number in (count, low, high)
    )
    compared = published_rate(published)
    return Rate(
        name=name,
        count=count,
        per_thousand_gpu_hours=rate,
        low_per_thousand_gpu_hours=least,
        high_per_thousand_gpu_hours=most,
        published_per_thousand_gpu_hours=compared,
        expected=compared * gpu_hours / THOUSAND if compared and gpu_hours else None,
    )
