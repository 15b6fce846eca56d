"""How often to save: the interval that minimizes time lost to saves and failures together.

J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974; J. T.
Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
Generation Computer Systems 22(3), 2006, equations 20 and 37.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A recommended interval, in seconds between the end of a save and the start of the next one.

    Args:
        young: sqrt(2 * write * between failures).
        daly: its higher-order form, which also holds if saves are not short compared with the time
            between failures.
        lost_share: of the time, to saves and to repeated work, at Daly's interval.
    """

    young: float
    daly: float
    lost_share: float


def recommended(write_seconds: float, between_failures_seconds: float) -> Interval:
    """Return the interval for a write time and a mean time between failures of the whole job.

    Raises:
        ValueError: one of them is not positive.
    """
    if not (write_seconds > 0 and between_failures_seconds > 0):
        raise ValueError("the write time and the time between failures must be above 0")
    young = math.sqrt(2 * write_seconds * between_failures_seconds)
    ratio = write_seconds / (2 * between_failures_seconds)
    if ratio >= 1:  # saves take longer than runs last
        daly = between_failures_seconds
    else:
        daly = young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write_seconds
    return Interval(young, daly, lost_share(daly, write_seconds, between_failures_seconds))


def lost_share(interval: float, write_seconds: float, between_failures_seconds: float) -> float:
    """Return the share of time that saves and repeated work take, at most 1.

    A failure comes at any moment, so it costs half an interval and half a save on average.
    """
    saves = write_seconds / (interval + write_seconds)
    repeated = (interval + write_seconds) / 2 / between_failures_seconds
    return min(saves + repeated, 1.0)
