"""Check: the only rank of a pipeline stage computes longer than at the start, and no other does.

Ranks without peers, in a pipeline of one replica, are compared with their own beginning: layers
stay where they are while a job runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import mean, typical
from rankscope_analyzers.stragglers import attribution
from rankscope_analyzers.stragglers.partition_imbalance import (
    MINIMUM_COST,
    ODD,
    RISEN,
    finish_time,
    typical_paces,
)
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, View

CERTAINTY = 0.8
"""Its work may have grown instead: nobody else has the same."""


def slow_stage(view: View) -> Candidate | None:
    """Return the rank whose stage has become slower, where each stage has one rank."""
    now = typical_paces(view) if view.stages_are_ranks else None
    if now is None or view.baseline is None:
        return None
    usual = _usual(now, np.maximum(view.baseline.paces, now.max() / ODD))
    if usual is None:
        return None
    slow = int(np.argmax(now - usual))
    lasted = float(mean(view.duration[-COST_STEPS:]))
    cost = (finish_time(view, now) - finish_time(view, usual)) / lasted
    if cost < MINIMUM_COST or now[slow] - usual[slow] < attribution.MINIMUM_SECONDS:
        return None
    observed, expected = float(now[slow]), float(usual[slow])
    found = Candidate("gpu_compute", cost, (slow,), -1, observed, expected, CERTAINTY)
    return replace(found, shown_by="stage").with_extent(view.paces[:, slow] / expected - 1)


def _usual(now: Floats, before: Floats) -> Floats | None:
    """Return what stages would need without the slow one, None if no single one has become slower.

    Args:
        now: (P,) compute of each stage.
        before: (P,) at the start of the run.
    """
    growth = now / before
    slow = int(np.argmax(growth))
    rise, rest = float(growth[slow]) - 1, typical(np.delete(growth, slow))
    if rise <= RISEN - 1 or rest >= 1 + rise / 2:
        return None
    usual = now.copy()
    usual[slow] = min(float(before[slow]) * rest, float(now[slow]))
    return usual
