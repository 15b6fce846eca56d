"""Each port's events compared with its peers', and the number expected. Pure numbers.

Peers are the ports that do the same work; leaving a port out of its own reference keeps small jobs
fair. What all share (a congested fabric, a noisy counter) makes no port an outlier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY, peer_median

DEVIATIONS = 6.0
"""Standard deviations: chance reaches that many once in a thousand million windows, and a fleet
judges some million a day."""

LOG_DEVIATIONS = 5.0
"""Peers' own deviations, on a logarithmic scale: numbers of events on healthy ports differ by
factors (their position in the fabric, their ranks' work), not by amounts."""

LEAST_SPREAD = 0.3
"""Least deviation (logarithm) that is taken as usual, however little few peers vary: paths through
a fabric and ranks' work differ by a third. So a port must have at least 4.5 times as many events as
its peers (exp of `LOG_DEVIATIONS` times this), and more if they are few."""

LARGEST_RATIO = 20.0
"""Upper limit: in no healthy fabric does one of two comparable ports have twenty times the
events."""

FEW_PEERS = 4.0
"""Widens the spread of few peers: the median deviation of 8 values is often half of the true
one."""


@dataclass(frozen=True, slots=True)
class Skew:
    """Which ports stand out, and what was expected of each.

    Args:
        outlier: (P,) True if the port has far more than its peers.
        expected: (P,) events at the rate of its peers; NaN without peers.
    """

    outlier: Booleans
    expected: Floats


def skew(
    events: Floats, exposure: Floats, groups: Integers, least: Floats, grain: float = 1.0
) -> Skew:
    """Compare ports with their peers.

    Args:
        events: (P,) counts, NaN if unknown.
        exposure: (P,) the denominator of rates: bytes carried, or seconds.
        groups: (P,) ports with the same number are peers; negative: no peers.
        least: (P,) fewer are not judged.
        grain: size of the portions that events come in: 1 for counts, the usual portion for
            measured quantities. The number of portions determines what is chance.
    """
    events, least = events / grain, least / grain
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = np.where(exposure > 0, events / exposure, np.nan)
    expected_rate = np.full_like(rates, np.nan)
    factor = np.full_like(rates, np.nan)
    spread = np.full_like(rates, np.nan)
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero((groups == group) & np.isfinite(rates))
        if len(members) > 1:
            expected_rate[members] = peer_median(rates[None, members])[0]
            spread[members] = _spread(rates[members])
            factor[members] = _usual_factor(rates[members], exposure[members])
    expected = expected_rate * exposure
    noise = np.sqrt(1 + expected + (spread * exposure) ** 2)
    with np.errstate(invalid="ignore"):
        outlier = (events >= least) & (events >= factor * expected)
        outlier &= events - expected >= DEVIATIONS * noise
    return Skew(outlier, expected * grain)


def _usual_factor(rates: Floats, exposure: Floats) -> float:
    """Return the factor by which a port may exceed its peers' median without standing out."""
    one_event = 1 / float(np.median(exposure))
    logs = np.log(rates + one_event)
    by_chance = one_event / (float(np.median(rates)) + one_event)  # variance of a count's logarithm
    own = np.sqrt(max(LEAST_SPREAD**2, _spread(logs) ** 2 - by_chance))
    return min(float(np.exp(LOG_DEVIATIONS * (1 + FEW_PEERS / len(logs)) * own)), LARGEST_RATIO)


def _spread(rates: Floats) -> float:
    """Return the peers' own spread from their median deviation, which outliers do not widen."""
    return NORMAL_CONSISTENCY * float(np.median(np.abs(rates - np.median(rates))))
