"""Check: ranks get unequal numbers of samples, and those with more delay the others.

A rank that computes longer because it was given more samples has no slow GPU. Differences that
samples explain are therefore judged before compute.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import mean, median, typical
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, SampleImbalance, View

MINIMUM_SKEW = 0.05
"""Share by which the largest count of a step exceeds the mean: packed sequences stay below it."""

MINIMUM_COST = 0.025
"""Share of the step, as for slow ranks: less is not worth acting on."""

MINIMUM_COUNTED = 0.9
"""Share of the ranks that must have a count: a few do not represent all."""

MINIMUM_EXPLAINED = 0.5
"""Fraction of the differences in compute that the counts must explain to be the reason."""

MAXIMUM_RATE = 2.0
"""Times the mean time of a sample that one more may take: attention takes four times as long for
twice as long a sequence. What a rank computes longer beyond that is not because of its samples."""

SILICON = 0.04
"""Share by which healthy GPUs of one model differ, as for slow ranks."""

SAME_RANK = 0.7
"""Share of the steps in which one rank must have the most to be named."""


def uneven_samples(view: View) -> Candidate | None:
    """Return the candidate that unequal counts cost a share of every step."""
    if view.work is None or view.shape.world < 2:
        return None
    counted = np.isfinite(view.work) & np.isfinite(view.compute)
    if float(counted.mean()) < MINIMUM_COUNTED * float(np.isfinite(view.compute).mean()):
        return None
    work = np.where(counted, view.work, np.nan).reshape(len(view.work), -1)
    each = mean(work, axis=1)
    largest = np.fmax.reduce(work, axis=1)
    if not typical(largest / np.maximum(each, 1e-12)) > 1 + MINIMUM_SKEW:
        return None
    compute = view.compute.reshape(len(view.work), -1)
    more = work - each[:, None]
    limit = typical(compute) / max(typical(work), 1e-12) * _largest_rate(view)
    rate, explained = _slope(more, compute - median(compute, 1), limit)
    if not rate > 0 or explained < MINIMUM_EXPLAINED:
        return None
    equal = np.where(np.isfinite(more), compute - rate * more, compute)
    cost = view.saved_share(equal.reshape(view.compute.shape)[-COST_STEPS:])
    if cost < MINIMUM_COST:
        return None
    sample_imbalance = _describe(work, rate, explained)
    return Candidate(
        "partition_imbalance", cost, (), -1, sample_imbalance.largest, sample_imbalance.mean,
        shown_by="samples", sample_imbalance=sample_imbalance,
    )  # fmt: skip


def _largest_rate(view: View) -> float:
    """Return how much longer a rank may take for its samples, relative to how many more it has.

    Where ranks had unequal counts at the start too, it is what these took then: a fast GPU that was
    given more samples, to take as long as the others, does not take longer because of them.
    """
    shares = view.baseline.work_shares if view.baseline else None
    if view.baseline is None or shares is None or not view.flat:
        return MAXIMUM_RATE
    known = np.isfinite(shares) & np.isfinite(view.baseline.relative)
    apart = float(shares[known].std()) if known.any() else 0.0
    if not apart > 0:
        return MAXIMUM_RATE
    more = shares[known] - shares[known].mean()
    longer = view.baseline.relative[known] - view.baseline.relative[known].mean()
    then = float((more @ longer) / (more @ more))
    return min(MAXIMUM_RATE, max(then, 0.0) + SILICON / apart)


def _describe(work: Floats, rate: float, explained: float) -> SampleImbalance:
    leaders = np.argmax(np.nan_to_num(work, nan=-np.inf), axis=1)
    tally = np.bincount(leaders, minlength=work.shape[1])
    most = int(np.argmax(tally))
    middle = float(mean(mean(work, axis=1)))
    if tally[most] >= SAME_RANK * len(work):
        return SampleImbalance(most, typical(work[:, most]), middle, rate, explained)
    return SampleImbalance(-1, typical(np.fmax.reduce(work, axis=1)), middle, rate, explained)


def _slope(more: Floats, longer: Floats, limit: float) -> tuple[float, float]:
    """Return the seconds per additional sample, and the share of variance explained.

    Least squares over all steps and ranks, each step relative to its own mean.

    Args:
        more: samples beyond the mean.
        longer: seconds beyond the median.
        limit: the most seconds that one more sample can take.
    """
    known = np.isfinite(more) & np.isfinite(longer)
    x, y = more[known] - more[known].mean(), longer[known] - longer[known].mean()
    across, spread, total = float(x @ y), float(x @ x), float(y @ y)
    if spread <= 0 or total <= 0:
        return 0.0, 0.0
    # Not across**2, which raises for impossibly large counts.
    rate = min(across / spread, limit)
    return rate, rate * ((2 * across - rate * spread) / total)
