"""Which rates are consistent with a count of independent events: Garwood's exact interval.

F. Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28 (1936). The interval
covers the true rate at least as often as stated, even for few events or none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

CONFIDENCE = 0.95

HALVINGS = 100
"""Bisections of an interval: more than a float has digits."""


class Interval(NamedTuple):
    """The lowest and the highest mean number of events."""

    low: float
    high: float


def interval(count: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean numbers of events that are consistent with a count.

    Args:
        count: number of events that were seen.
        confidence: share of many such intervals that contain the true mean, 0 to 1.
    """
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else _mean(count - 1, 1 - tail)
    return Interval(low, _mean(count, tail))


def _mean(count: int, probability: float) -> float:
    """Return the mean for which at most this many events have the given probability."""
    low, high = 0.0, count + 10.0 * math.sqrt(count + 1.0) + 10.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(count, middle) > probability else (low, middle)
    return (low + high) / 2


def at_most(count: int, mean: float) -> float:
    """Return the probability of at most this many events."""
    if mean <= 0:
        return 1.0
    log = math.log(mean)
    return math.fsum(math.exp(k * log - mean - math.lgamma(k + 1)) for k in range(count + 1))
