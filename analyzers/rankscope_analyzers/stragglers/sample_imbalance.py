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
    rate, explained = _slope(more, compute - median(compute, 1))
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


def _describe(work: Floats, rate: float, explained: float) -> SampleImbalance:
    leaders = np.argmax(np.nan_to_num(work, nan=-np.inf), axis=1)
    tally = np.bincount(leaders, minlength=work.shape[1])
    most = int(np.argmax(tally))
    middle = float(mean(mean(work, axis=1)))
    if tally[most] >= SAME_RANK * len(work):
        return SampleImbalance(most, typical(work[:, most]), middle, rate, explained)
    return SampleImbalance(-1, typical(np.fmax.reduce(work, axis=1)), middle, rate, explained)


def _slope(more: Floats, longer: Floats) -> tuple[float, float]:
    """Return the seconds per additional sample, and the share of variance explained.

    Least squares over all steps and ranks, each step relative to its own mean.
    """
    known = np.isfinite(more) & np.isfinite(longer)
    x, y = more[known] - more[known].mean(), longer[known] - longer[known].mean()
    across, spread, total = float(x @ y), float(x @ x), float(y @ y)
    if spread <= 0 or total <= 0:
        return 0.0, 0.0
    # Not across**2, which raises for impossibly large counts.
    return across / spread, (across / spread) * (across / total)
