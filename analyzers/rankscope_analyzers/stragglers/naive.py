"""The naive answer of a dashboard of step times: blame the rank with the longest step.

Reported because it is what people try first. Steps are synchronous, so the answer is noise; the
spread shows how little the step times differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.row_statistics import column_median
from rankscope_analyzers.steps.frames import StepFrame


@dataclass(frozen=True, slots=True)
class NaiveAnswer:
    """The rank with the largest median step time, and by how much.

    Args:
        rank: None if no step can be judged, or the shortest takes no time.
        spread: (largest - smallest) / smallest median step time over ranks.
    """

    rank: int | None
    spread: float


def largest_step_time(frame: StepFrame) -> NaiveAnswer:
    """Return the rank that step times accuse."""
    medians = step_medians(frame)
    known = medians[np.isfinite(medians)]
    if not known.size or not known.min() > 0.0:
        return NaiveAnswer(None, 0.0)
    spread = float(known.max() / known.min() - 1.0)
    return NaiveAnswer(int(frame.ranks[np.nanargmax(medians)]), spread)


def step_medians(frame: StepFrame) -> Floats:
    """Return the median step time (R,) of each rank over the usable steps, seconds."""
    return column_median(frame.usable_only().step)
