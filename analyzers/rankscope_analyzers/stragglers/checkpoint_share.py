"""How much of a job's time its checkpoints take, as marked by probes.

Steps of a synchronous job wait for the rank that saves longest, so its time is the job's. Saving
concurrently with training, in threads or other processes, blocks no step and does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median

import numpy as np

from rankscope_analyzers.steps.beside_steps import SAVING, BesideSteps
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.text.wording import duration

NOTABLE_SHARE = 0.1
"""Share of the time from which on it is reported: with Young's interval a job with one failure a
day and saves of a minute loses 5 % to saving."""


def note(frame: StepFrame, spans: Iterable[BesideSteps]) -> Iterator[str]:
    """Yield a sentence about a job that saves for a large share of its time.

    Args:
        frame: its steps.
        spans: what its ranks did outside of steps.
    """
    known = np.isfinite(frame.starts)
    if not known.any():
        return
    first = float(frame.starts[known].min())
    last = float(np.nanmax(frame.starts + frame.step))
    lasted: dict[int, list[float]] = defaultdict(list)
    for span in spans:
        if span.kind in SAVING and first <= span.begin < last and span.blocked > 0:
            lasted[span.rank].append(span.blocked)
    if not lasted or last <= first:
        return
    rank, saves = max(lasted.items(), key=lambda one: (sum(one[1]), -one[0]))
    share = min(sum(saves) / (last - first), 1.0)
    if share >= NOTABLE_SHARE:
        yield (
            f"Checkpoints take {share:.0%} of the time: rank {rank} saved {len(saves)} times in"
            f" {duration(last - first)}, {duration(median(saves))} each (median), while no step"
            " could end. Save less often, asynchronously or to faster storage."
        )
