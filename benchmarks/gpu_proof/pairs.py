"""Compares sampled steps with those around them, which are naturally interleaved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

FEWEST = 8


def ratios(rows: pd.DataFrame) -> Sequence[float]:
    """Return how long each sampled step lasts, as a multiple of the mean of its two neighbours.

    The step before a sample records what streams carry, and is not a neighbour: the one before it
    is. Samples without an unsampled neighbour on each side are left out.
    """
    found: list[float] = []
    for _, one in rows.sort_values(["rank", "step"]).groupby("rank"):
        steps = dict(zip(one["step"], one["step_seconds"], strict=True))
        sampled = set(one.loc[one["timing_source"] == "sampled", "step"])
        for step in sorted(sampled):
            around = [steps.get(near) for near in (step - 2, step + 1) if near not in sampled]
            known = [seconds for seconds in around if seconds]
            if len(known) == 2:
                found.append(2 * steps[step] / sum(known))
    return found


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % interval by order statistics (binomial, normal approximation).

    Raises:
        ValueError: fewer than `FEWEST` values.
    """
    count = len(values)
    if count < FEWEST:
        raise ValueError(f"{count} pairs, of which at least {FEWEST} are needed")
    ordered = sorted(values)
    half = 0.98 * math.sqrt(count)  # 1.96 standard deviations of half the count
    low = max(math.floor(count / 2 - half), 0)
    high = min(math.ceil(count / 2 + half), count - 1)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return middle, ordered[low], ordered[high]
