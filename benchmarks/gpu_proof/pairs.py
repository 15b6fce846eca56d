"""Compares sampled steps with those around them, which are naturally interleaved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

FEWEST = 8
BESIDE = (-1, 0, 1)
"""Steps around a sample that it can make longer or shorter: the one before it records what streams
carry, and the host makes up in the one after it for what it lost while the device was busy."""


def ratios(rows: pd.DataFrame) -> Sequence[float]:
    """Return how long each sampled step lasts, as a multiple of the usual step around it.

    What the step takes longer is what it and its neighbours take beyond as many steps before and
    after them. Samples without all of these are left out.
    """
    found: list[float] = []
    for _, one in rows.sort_values(["rank", "step"]).groupby("rank"):
        steps = dict(zip(one["step"], one["step_seconds"], strict=True))
        sampled = set(one.loc[one["timing_source"] == "sampled", "step"])
        for step in sorted(sampled):
            beside = [steps.get(step + near) for near in BESIDE]
            far = [step + side * len(BESIDE) + near for side in (-1, 1) for near in BESIDE]
            around = [steps.get(number) for number in far if number not in sampled]
            known = [seconds for seconds in around if seconds]
            if None not in beside and len(known) == 2 * len(BESIDE):
                usual = sum(known) / len(known)
                found.append(1 + sum(seconds - usual for seconds in beside if seconds) / usual)
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
