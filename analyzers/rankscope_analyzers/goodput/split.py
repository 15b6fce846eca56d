"""How one step spent its time: the parts of its duration, in their documented order. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.parts import Sums
from rankscope_analyzers.goodput.reference import Times


@dataclass(frozen=True, slots=True)
class Step:
    """One executed step; durations in seconds, NaN if not measured.

    Args:
        lasted: from the end of the one before to its own.
        within: cause from findings about the job at the time, empty if there were none; it takes
            what the step's own parts do not explain.
        replayed: True if an earlier attempt had already made it.
        hang_seconds: that a step may take; more is a hang that passed.
    """

    lasted: float
    checkpoint: float
    evaluation: float
    data: float
    own: float
    usual_own: float
    sync: float
    within: str = ""
    replayed: bool = False
    hang_seconds: float = math.inf


def split(step: Step, usual: Times) -> Sums:
    """Return seconds by part; they add up to the step's duration.

    Args:
        step: to be split.
        usual: an undisturbed one.
    """
    found = parts.no_sums()
    left = step.lasted
    useful = parts.REPLAYED if step.replayed else parts.PRODUCTIVE
    for part, seconds in ((parts.CHECKPOINT, step.checkpoint), (parts.EVALUATION, step.evaluation)):
        found[part] = min(seconds, left)
        left -= found[part]
    excess = left - usual.step
    if excess > step.hang_seconds:
        found[parts.HANG], found[useful] = excess, usual.step
        return found
    if excess <= (0.0 if step.within else usual.noise):
        found[useful] = left
        return found
    found[useful], left = usual.step, excess
    work = step.own - usual.own
    for part, beyond in (
        (parts.DATA, step.data - usual.data),
        (parts.STRAGGLER, min(work, step.own - step.usual_own)),
        (parts.SLOWDOWN, min(work, step.usual_own - usual.own)),
        (parts.SYNC, step.sync - usual.sync),
    ):
        if beyond > 0:  # NaN means not measured
            found[part] = min(beyond, left)
            left -= found[part]
    found[step.within or parts.UNEXPLAINED] += left
    return found
