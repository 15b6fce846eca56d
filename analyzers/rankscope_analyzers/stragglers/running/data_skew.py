"""Conclusion: ranks get unequal amounts of work, and those with more of it hold the others up.

A rank that computes longer because it was given more samples is no slow GPU. What its samples
explain is therefore judged before compute: each rank's time per sample is compared, not its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.findings.finding import Evidence, Finding, Subject
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.row_statistics import column_median, row_maximum, row_median
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running.cost import from_saved
from rankscope_analyzers.stragglers.running.rank_finding import PAGE_COST, bounds, confidence
from rankscope_analyzers.stragglers.running.windows import WINDOW_STEPS, Span

MINIMUM_SKEW = 0.05
"""Share by which the largest count of a step exceeds the mean: packed sequences stay below it."""

MINIMUM_COST = 0.025
"""Share of the step, as for slow ranks: less pays for nobody's attention."""

MINIMUM_COUNTED = 0.9
"""Share of the records with a count: a comparison of few says nothing about all."""

MINIMUM_EXPLAINED = 0.5
"""Part of the differences in compute that the counts must explain, or they are not the reason."""

SAME_RANK = 0.7
"""Share of the steps in which one rank has the most for it to be always the same one."""

RUNBOOK = "docs/runbooks/RankscopeUnevenWork.md"


def analyze(frame: StepFrame) -> Sequence[Finding]:
    """Return a finding if unequal counts of samples (or tokens) cost a share of every step."""
    judged = frame.usable_only()
    counted = np.isfinite(judged.work) & np.isfinite(judged.compute)
    if len(judged.ranks) < 2 or len(judged.steps) < WINDOW_STEPS:
        return []
    if counted.mean() < MINIMUM_COUNTED:
        return []
    work = np.where(counted, judged.work, np.nan)
    skew = _skew(judged, work)
    if skew is None:
        return []
    span = Span(0, len(judged.steps))
    cost = from_saved(judged, span, skew.saved)
    if cost.lost_fraction < MINIMUM_COST:
        return []
    since, until = bounds(judged, span)
    return [
        Finding(
            kind="partition_imbalance",
            severity="page" if cost.lost_fraction >= PAGE_COST else "ticket",
            subject=Subject(judged.job_id, (), (), ()),
            summary=_summary(judged, skew),
            action=_action(judged, skew),
            evidence=_evidence(skew),
            cost=cost,
            confidence=confidence(cost.lost_fraction),
            runbook=RUNBOOK,
            since_unix_seconds=since,
            until_unix_seconds=until,
        )
    ]


@dataclass(frozen=True, slots=True)
class _Skew:
    """How unequal the work is.

    Args:
        saved: (S,) seconds by which equal counts would shorten each step.
        counts: (R,) median count of each rank.
        most: column of the rank that has the most most often.
        share: of the steps in which it has.
        largest: median of the largest count of a step.
        mean: mean count.
        rate: seconds of compute for one more of what is counted.
        explained: part of the variance of compute within steps that the counts explain.
    """

    saved: Floats
    counts: Floats
    most: int
    share: float
    largest: float
    mean: float
    rate: float
    explained: float


def _skew(frame: StepFrame, work: Floats) -> _Skew | None:
    """Measure the skew; None where counts are equal or compute does not follow them."""
    known = np.isfinite(work)
    mean = np.where(known, work, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    largest = row_maximum(work)
    if not float(np.median(largest / np.maximum(mean, 1e-12))) > 1 + MINIMUM_SKEW:
        return None
    rate, explained = _slope(
        work - mean[:, None], frame.compute - row_median(frame.compute)[:, None]
    )
    if not rate > 0 or explained < MINIMUM_EXPLAINED:
        return None
    level = np.where(known, frame.compute - rate * (work - mean[:, None]), np.nan)
    busy = np.nan_to_num(frame.data) + frame.compute
    equal = np.nan_to_num(frame.data) + level
    leaders = np.argmax(np.where(known, work, -np.inf), axis=1)
    tally = np.bincount(leaders, minlength=work.shape[1])
    most = int(np.argmax(tally))
    return _Skew(
        saved=np.maximum(row_maximum(busy) - row_maximum(equal), 0.0),
        counts=column_median(work),
        most=most,
        share=float(tally[most] / len(work)),
        largest=float(np.median(largest)),
        mean=float(mean.mean()),
        rate=rate,
        explained=explained,
    )


def _slope(more: Floats, longer: Floats) -> tuple[float, float]:
    """Return the seconds for one more of what is counted, and the share of variance explained.

    Least squares over all steps and ranks, each step against its own middle.
    """
    known = np.isfinite(more) & np.isfinite(longer)
    x, y = more[known] - more[known].mean(), longer[known] - longer[known].mean()
    across, spread, total = float(x @ y), float(x @ x), float(y @ y)
    if spread <= 0 or total <= 0:
        return 0.0, 0.0
    return across / spread, across**2 / (spread * total)


def _is_fixed(skew: _Skew) -> bool:
    return skew.share >= SAME_RANK


def _summary(frame: StepFrame, skew: _Skew) -> str:
    if _is_fixed(skew):
        own = skew.counts[skew.most]
        return (
            f"the data are dealt unevenly: rank {frame.ranks[skew.most]} gets {own:.6g} samples a "
            f"step, {own / skew.mean:.2f}x the mean of {skew.mean:.6g}"
        )
    return (
        f"the data are dealt unevenly: the rank with the most gets {skew.largest:.6g} samples, "
        f"{skew.largest / skew.mean:.2f}x the mean of {skew.mean:.6g}, a changing rank of all"
    )


def _action(frame: StepFrame, skew: _Skew) -> str:
    most = frame.ranks[skew.most]
    where = f"Give rank {most} fewer" if _is_fixed(skew) else "Deal equal numbers of"
    return (
        f"{where} samples, {skew.mean:.6g} a step on every rank: each one more takes "
        f"{skew.rate * 1e3:.3g} ms of compute, and the counts explain {skew.explained:.0%} of the "
        "differences between ranks. No hardware is at fault."
    )


def _evidence(skew: _Skew) -> tuple[Evidence, ...]:
    meaning = "largest count of a step, against the mean of all ranks"
    return (Evidence("samples", skew.largest, skew.mean, "samples", meaning),)
