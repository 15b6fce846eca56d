"""The parts of a job's allocated GPU time, and their order where faults overlap.

allocated = productive + lost, by cause + unobserved + unexplained. A second belongs to one part: of
several that apply, to the first one in `PARTS`. Productive is not a remainder: it is the measured
duration of kept steps, each at most the duration of an undisturbed step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

UNOBSERVED, HELD, HANG = "unobserved", "held", "hang"
RESTART, STARTUP, IDLE = "restart", "startup", "idle"
CHECKPOINT, EVALUATION = "checkpoint", "evaluation"
DATA, STRAGGLER = "data", "straggler"
SLOWDOWN, SYNC = "slowdown", "sync"
REPLAYED, PRODUCTIVE, UNEXPLAINED = "replayed", "productive", "unexplained"

PARTS: Mapping[str, str] = {
    UNOBSERVED: "GPUs were held, and no step was seen although some were made or may have been",
    HELD: "GPUs were held while other pods of the job had no node",
    HANG: "no step ended, and processes lived",
    RESTART: "from the last step of an attempt to the first one of the next",
    STARTUP: "from the start of the first processes to the first step",
    IDLE: "processes or pods held GPUs after the last step",
    CHECKPOINT: "steps waited for a checkpoint",
    EVALUATION: "steps waited for an evaluation: work, but no training",
    DATA: "steps waited for input for longer than they usually do",
    STRAGGLER: "steps waited for the work of a rank that usually takes less",
    SLOWDOWN: "the work of all ranks took longer than it usually does",
    SYNC: "the exchange of all ranks took longer than it usually does",
    REPLAYED: "steps that an earlier attempt had made after the checkpoint that this one resumed",
    PRODUCTIVE: "steps that were kept, each for at most what an undisturbed one takes",
    UNEXPLAINED: "what steps took beyond that, and no measured part of them explains",
}
"""The meaning of each part, in the order in which overlapping ones are counted."""

LOST = tuple(one for one in PARTS if one not in (UNOBSERVED, PRODUCTIVE, UNEXPLAINED))
"""Parts that are lost to a cause."""

OVERHEAD = (CHECKPOINT, EVALUATION, STARTUP, IDLE)
"""Lost time that a healthy job has, too: it is planned, and counts against no budget."""

FAULTS = tuple(one for one in LOST if one not in OVERHEAD)

Sums = dict[str, float]
"""Seconds by part."""


def no_sums() -> Sums:
    """Return 0 for each part."""
    return dict.fromkeys(PARTS, 0.0)


def added(several: Iterable[Mapping[str, float]]) -> Sums:
    """Return the sums of several sums."""
    total = no_sums()
    for one in several:
        for part, seconds in one.items():
            total[part] += seconds
    return total


def sums_of(kept: Mapping[str, Any]) -> Sums:
    """Return sums from their saved form.

    Raises:
        TypeError, ValueError, AttributeError: it is not one.
    """
    sums = {part: float(seconds) for part, seconds in kept.items()}
    for part, seconds in sums.items():
        if part not in PARTS or not 0 <= seconds < math.inf:
            raise ValueError(f"{part!a}: {seconds!a} is not a sum of a part")
    return sums
