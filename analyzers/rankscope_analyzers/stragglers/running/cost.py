"""What a fault costs: the step time that would remain if the culprits were like their peers."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.findings.finding import Cost
from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.peers import healthy_median_by_stage
from rankscope_analyzers.numeric.row_statistics import row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running.windows import Span

SECONDS_PER_HOUR = 3600.0


def if_like_peers(
    frame: StepFrame, culprits: Booleans, span: Span, part: Floats | None = None
) -> Cost:
    """Return the cost of culprit ranks over a span, by the what-if of synchronous steps.

    A step lasts as long as its busiest rank lets it: T_ideal = T - (max busy - max busy'), where
    busy' has a part of each culprit's busy time lowered to its healthy peers' median, and lost =
    1 - sum T_ideal / sum T. Source: the what-if analysis of Lin et al., OSDI 2025, reduced to
    data parallelism.

    Args:
        frame: the job.
        culprits: (R,) true for the ranks to replace.
        span: rows over which the fault lasted.
        part: (S, R) seconds of the busy time that are longer than they should be; default: input
            and compute.
    """
    busy = frame.busy()[span.rows()]
    too_long = (frame.working() if part is None else part)[span.rows()]
    excess = too_long - healthy_median_by_stage(too_long, culprits, frame.stages)
    ideal = np.where(culprits, busy - np.fmax(excess, 0.0), busy)
    return from_saved(frame, span, row_maximum(busy) - row_maximum(ideal))


def from_saved(frame: StepFrame, span: Span, saved: Floats) -> Cost:
    """Return the cost of `saved` seconds (S,) in each step of a span, for the whole job."""
    duration = row_maximum(frame.step[span.rows()])
    total = float(duration.sum())
    lost = float(np.clip(saved, 0.0, duration).sum())
    return Cost(
        lost_fraction=lost / total if total else 0.0,
        gpu_hours=lost * frame.world_size / SECONDS_PER_HOUR,
    )
