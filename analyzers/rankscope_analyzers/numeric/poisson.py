"""Which rates go with a count of events that come by themselves: the exact interval of Garwood.

F. Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28 (1936): it covers the true
rate at least as often as it says, also for few events, and for none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

CONFIDENCE = 0.95

HALVINGS = 100
"""Of an interval: more than a float has digits."""


class Interval(NamedTuple):
    """The lowest and the highest mean number of events."""

    low: float
    high: float


def interval(count: int, confidence: float = CONFIDENCE) -> Interval:
    """Return which mean numbers of events a count goes with.

    Args:
        count: of events that were seen.
        confidence: how often, of many such intervals, the true mean is within.
    """
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else _mean(count - 1, 1 - tail)
    return Interval(low, _mean(count, tail))


def _mean(count: int, probability: float) -> float:
    """Return the mean for which at most so many events have this probability."""
    low, high = 0.0, count + 10.0 * math.sqrt(count + 1.0) + 10.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(count, middle) > probability else (low, middle)
    return (low + high) / 2


def at_most(count: int, mean: float) -> float:
    """Return the probability of at most so many events."""
    if mean <= 0:
        return 1.0
    log = math.log(mean)
    return math.fsum(math.exp(k * log - mean - math.lgamma(k + 1)) for k in range(count + 1))
