"""Find ranks that hold their peers up for long enough to matter, given each rank's excess time.

Shared by the conclusions that name ranks. It looks for ranks whose excess over their peers is a
noticeable share of the step, sticks out of the noise, lasts, and towers above that of all others:
on a busy machine somebody is always a little late, but never by twice the next one for long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.peers import noise, peer_median
from rankscope_analyzers.numeric.row_statistics import row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running.windows import (
    WINDOW_STEPS,
    Span,
    persists,
    rolling_mean,
    spans,
    window_means,
)

MINIMUM_COST = 0.025
"""Share of the step time: healthy GPUs of one kind differ by up to 2 %, and a fault that costs
less than that pays for nobody's night."""

MINIMUM_EXCESS_SECONDS = 0.003
"""Seconds a step: the turn that Linux's scheduler gives a process on a shared core (3 ms, its base
slice). A rank that is late by less may just share its core with something."""

SIGNIFICANCE = 5.0
"""Standard errors: with thousands of ranks and windows, three would accuse somebody every hour."""

UP_SIGMAS = 1.5
"""A step counts as slow for a rank when its excess leaves this much noise behind."""

DOMINANCE = 2.0
"""Culprits must exceed every rank that is not accused at least by this factor."""

MAXIMUM_ACCUSED_SHARE = 0.5
"""When more ranks than this are slow there is no healthy majority to compare with; exactly half of
them can only be culprits as one of two ranks, or as all ranks of a node."""

MINIMUM_WAIT_SHARE = 0.25
"""A culprit's peers wait for it: at least this part of its excess must show as their waiting."""


@dataclass(frozen=True, slots=True)
class RankFault:
    """Ranks that were slow together, the worst first, and when.

    Args:
        columns: indices into `frame.ranks`, the largest mean excess first.
        span: rows from the first to the last slow step.
        excess: (R,) mean excess of every rank over the span, seconds a step.
    """

    columns: tuple[int, ...]
    span: Span
    excess: Floats

    def mask(self) -> Booleans:
        """Return (R,) true for the accused ranks."""
        accused = np.zeros(len(self.excess), dtype=np.bool_)
        accused[list(self.columns)] = True
        return accused


def find(
    frame: StepFrame, excess: Floats, slow_share: float, smoothing: int = 1
) -> tuple[RankFault, ...]:
    """Return the rank faults in a frame of usable steps, in order of time.

    Args:
        frame: the job; only usable steps.
        excess: (S, R) seconds that each rank needed beyond its peers.
        slow_share: share of the steps of a window in which a rank must be slow.
        smoothing: steps over which a rank's slowness may be spread unevenly.
    """
    if len(frame.ranks) < 2 or not np.isfinite(excess).any():
        return ()
    duration = row_maximum(frame.step)
    smooth = rolling_mean(excess, smoothing)
    spread = noise(smooth)
    error = spread * np.sqrt(smoothing)  # of a mean over steps, once divided by their root
    slow = smooth > np.maximum(UP_SIGMAS * spread, MINIMUM_COST / 2 * np.median(duration))
    often = window_means(slow.astype(np.float64)) > slow_share
    flagged = _flagged(excess, duration, error) & often
    per_rank = [
        (column, _trimmed(span, slow[:, column]))
        for column in np.flatnonzero(flagged.any(axis=0)).tolist()
        for span in spans(flagged[:, column], len(excess))
    ]
    faults = (_fault(together, excess) for together in _simultaneous(per_rank))
    return tuple(fault for fault in faults if _convicts(frame, fault, error, duration))


def _flagged(excess: Floats, duration: Floats, error: Floats) -> Booleans:
    mean = window_means(excess)
    step = window_means(duration[:, None])
    threshold = np.maximum(MINIMUM_COST * step, SIGNIFICANCE * error / np.sqrt(WINDOW_STEPS))
    return np.asarray(mean > threshold, dtype=np.bool_)


def _trimmed(span: Span, slow: Booleans) -> Span:
    """Cut a span to its first and last slow step: windows reach beyond a fault's edges."""
    rows = np.flatnonzero(slow[span.rows()])
    return Span(span.start + int(rows[0]), span.start + int(rows[-1]) + 1)


def _simultaneous(per_rank: list[tuple[int, Span]]) -> list[list[tuple[int, Span]]]:
    """Put spans of different ranks that share most of their time together."""
    together: list[list[tuple[int, Span]]] = []
    for column, span in sorted(per_rank, key=lambda item: item[1].start):
        for group in together:
            shorter = min(span.stop - span.start, group[0][1].stop - group[0][1].start)
            if 2 * span.overlap(group[0][1]) > shorter:
                group.append((column, span))
                break
        else:
            together.append([(column, span)])
    return together


def _fault(members: list[tuple[int, Span]], excess: Floats) -> RankFault:
    span = Span(min(s.start for _, s in members), max(s.stop for _, s in members))
    inside = excess[span.rows()]
    count = np.maximum(np.isfinite(inside).sum(axis=0), 1)
    mean = np.nansum(inside, axis=0) / count
    columns = sorted({column for column, _ in members}, key=lambda column: -mean[column])
    worst = mean[columns[0]]
    return RankFault(tuple(c for c in columns if DOMINANCE * mean[c] >= worst), span, mean)


def _convicts(frame: StepFrame, fault: RankFault, error: Floats, duration: Floats) -> bool:
    accused = fault.mask()
    # Nobody is accused where a rank that others wait for, to write a checkpoint, makes up in the
    # mean for the steps in which it was late.
    if not accused.any() or not _is_minority(frame, accused):
        return False
    least = float(fault.excess[accused].min())
    others = float(fault.excess[~accused].max(initial=0.0))
    steps = fault.span.stop - fault.span.start
    significant = SIGNIFICANCE * float(error.max()) / np.sqrt(steps)
    noticeable = MINIMUM_COST * float(duration[fault.span.rows()].mean())
    needed = max(noticeable, significant, MINIMUM_EXCESS_SECONDS)
    return least > needed and least >= DOMINANCE * others and persists(frame, fault.span)


def _is_minority(frame: StepFrame, accused: Booleans) -> bool:
    count, limit = int(accused.sum()), MAXIMUM_ACCUSED_SHARE * len(accused)
    if count != limit or count == 1:
        return count <= limit
    nodes = np.array(frame.nodes)
    return not set(nodes[accused]) & set(nodes[~accused])


def peers_wait(frame: StepFrame, fault: RankFault) -> bool:
    """Say whether the worst rank's peers spend its excess waiting, where sync time is known.

    Least waiting alone accuses innocent ranks and most computing alone does too: the culprit of a
    synchronous step shows both.
    """
    column = fault.columns[0]
    sync = frame.sync[fault.span.rows()]
    waited = (peer_median(sync) - sync)[:, column]
    if not np.isfinite(waited).any():
        return True
    return float(np.nanmean(waited)) >= MINIMUM_WAIT_SHARE * float(fault.excess[column])
