"""Check: the only rank of a pipeline stage computes longer than at the start, and no other does.

Ranks without peers, in a pipeline of one replica, are compared with their own beginning: layers
stay where they are while a job runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope_analyzers.numeric.medians import mean, typical
from rankscope_analyzers.stragglers import attribution
from rankscope_analyzers.stragglers.partition_imbalance import (
    MINIMUM_COST,
    finish_time,
    growth_of_stages,
    outgrows_others,
    typical_paces,
)
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, View

CERTAINTY = 0.8
"""Its work may have grown instead: nobody else has the same."""


def slow_stage(view: View) -> Candidate | None:
    """Return the rank whose stage has become slower, where each stage has one rank."""
    now = typical_paces(view) if view.stages_are_ranks else None
    growth = None if now is None else growth_of_stages(view, now)
    if now is None or growth is None:
        return None
    slow = int(np.argmax(growth))
    if not outgrows_others(growth, slow):
        return None
    usual = now.copy()
    usual[slow] *= min(typical(np.delete(growth, slow)) / float(growth[slow]), 1.0)
    lasted = float(mean(view.duration[-COST_STEPS:]))
    cost = (finish_time(view, now) - finish_time(view, usual)) / lasted
    if cost < MINIMUM_COST or now[slow] - usual[slow] < attribution.MINIMUM_SECONDS:
        return None
    observed, expected = float(now[slow]), float(usual[slow])
    found = Candidate("gpu_compute", cost, (slow,), -1, observed, expected, CERTAINTY)
    return replace(found, shown_by="stage").with_extent(view.paces[:, slow] / expected - 1)
