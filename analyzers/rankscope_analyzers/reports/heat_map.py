"""Each rank's times as small byte matrices for drawing: compute, input, waiting.

A cell is the mean over the steps of one bin. Compute is a ratio to the peers of the rank's stage in
the same step, so that what all ranks share cancels out; waiting and input are shares of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.peers import peer_median_by_stage
from rankscope_analyzers.numeric.row_statistics import column_median, row_median
from rankscope_analyzers.steps.frames import StepFrame

Bytes: TypeAlias = npt.NDArray[np.uint8]

MOST_BINS = 240
"""Columns: with a label next to them each is some 4 pixels wide on a page of 1280."""

LEVELS = 254
"""Codes 1 to 255 are values from low to high, 0 is not measured."""

RATIO_LOW, RATIO_HIGH = 0.5, 16.0
"""Ratios on a logarithmic scale: five octaves in 254 levels are steps of 1.4 %."""

BUSY_QUANTILE = 0.9
"""A rank's brightness is that of its tenth-worst bin of a hundred: one hiccup sets no scale."""

RATIO_TOPS = (1.25, 4.0)
"""The darkest colour is between these ratios: noise of a healthy job stays pale, and a rank that is
slow by half stays visible next to one that is ten times slower."""

SHARE_TOPS = (0.1, 1.0)
"""The same for shares of the step."""

WORTH_A_MAP = 0.05
"""Fraction of the step that some rank must wait for input before input gets a separate map."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One matrix.

    Args:
        name: compute, sync or data.
        scale: how codes become values: geometrically from low to high, or evenly.
        pool: which rank represents several that share a row of pixels, so that the culprit shows:
            the one that computes longest, but the one that waits least.
        low: value of code 1.
        high: value of code 255.
        top: value of the strongest colour.
        cells: (R, B) codes.
    """

    name: Literal["compute", "sync", "data"]
    scale: Literal["ratio", "share"]
    pool: Literal["max", "min"]
    low: float
    high: float
    top: float
    cells: Bytes


def bin_edges(steps: int, most: int = MOST_BINS) -> Integers:
    """Return the B + 1 edges of at most `most` bins of consecutive executed steps."""
    return np.linspace(0, steps, min(steps, most) + 1).round().astype(np.int64)


def maps(frame: StepFrame, edges: Integers) -> tuple[HeatMap, ...]:
    """Return the maps of a job: compute and waiting, and input if some rank waits for it."""
    found = [
        _map("compute", compute_ratio(frame, edges)),
        _map("sync", share_of_step(frame, frame.sync, edges)),
    ]
    waiting = share_of_step(frame, frame.data, edges)
    if _busiest(waiting) >= WORTH_A_MAP:
        found.append(_map("data", waiting))
    return tuple(found)


def compute_ratio(frame: StepFrame, edges: Integers) -> Floats:
    """Return (B, R) means of compute time over that of the median peer of the stage in its step.

    The only rank of a stage has no peer in its step: it is compared with its own median step.
    """
    alone = _alone(frame.stages)
    own = np.full(len(frame.ranks), np.nan)
    if alone.any():
        own[alone] = column_median(frame.compute[:, alone])

    def ratios(rows: slice) -> Floats:
        compute = frame.compute[rows]
        peers = peer_median_by_stage(compute, frame.stages)
        peers = np.where(alone, own, peers)
        return _quotient(compute, peers)

    return _means(ratios, edges, len(frame.ranks))


def share_of_step(frame: StepFrame, seconds: Floats, edges: Integers) -> Floats:
    """Return (B, R) means of the share that `seconds` (S, R) take of the step."""
    return _means(lambda rows: _quotient(seconds[rows], frame.step[rows]), edges, len(frame.ranks))


def step_times(frame: StepFrame, edges: Integers) -> tuple[Floats, Floats]:
    """Return the median and the longest step (B,) of each bin, in seconds, of the median rank."""
    each = row_median(frame.step)
    bins = [each[begin:end] for begin, end in pairwise(edges)]
    known = [steps[np.isfinite(steps)] for steps in bins]
    median = np.array([np.median(steps) if len(steps) else np.nan for steps in known])
    return median, np.array([steps.max() if len(steps) else np.nan for steps in known])


def encode(values: Floats, low: float, high: float, geometric: bool) -> Bytes:
    """Return codes of values: 0 for not measured, else 1 (low or less) to 255 (high or more)."""
    known = np.isfinite(values)
    inside = np.clip(np.where(known, values, low), low, high)
    location = (
        np.log(inside / low) / np.log(high / low) if geometric else (inside - low) / (high - low)
    )
    return np.where(known, 1 + np.rint(location * LEVELS), 0).astype(np.uint8)


def _map(name: Literal["compute", "sync", "data"], values: Floats) -> HeatMap:
    ratio = name == "compute"
    low, high = (RATIO_LOW, RATIO_HIGH) if ratio else (0.0, 1.0)
    least, most = RATIO_TOPS if ratio else SHARE_TOPS
    return HeatMap(
        name=name,
        scale="ratio" if ratio else "share",
        pool="min" if name == "sync" else "max",
        low=low,
        high=high,
        top=float(np.clip(_busiest(values), least, most)),
        cells=np.ascontiguousarray(encode(values, low, high, ratio).T),
    )


def _busiest(values: Floats) -> float:
    """Return the largest value over ranks of what a rank reaches in a tenth of its bins."""
    filled = np.where(np.isfinite(values), values, -np.inf)
    return float(np.quantile(filled, BUSY_QUANTILE, axis=0, method="lower").max(initial=-np.inf))


def _alone(stages: Integers) -> npt.NDArray[np.bool_]:
    _, index, count = np.unique(stages, return_inverse=True, return_counts=True)
    return np.asarray(count[index] == 1)


def _quotient(above: Floats, below: Floats) -> Floats:
    known = np.isfinite(above) & np.isfinite(below) & (below > 0)
    with np.errstate(over="ignore"):
        return np.divide(above, below, out=np.full_like(above, np.nan), where=known)


def _means(values: Callable[[slice], Floats], edges: Integers, ranks: int) -> Floats:
    """Return (B, R) means of the finite values of each bin, bin by bin to stay small."""
    means = np.full((len(edges) - 1, ranks), np.nan)
    for number, (begin, end) in enumerate(pairwise(edges)):
        block = values(slice(begin, end))
        known = np.isfinite(block)
        count = known.sum(axis=0)
        total = np.where(known, block, 0.0).sum(axis=0)
        np.divide(total, count, out=means[number], where=count > 0)
    return means
