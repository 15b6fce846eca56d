"""Conditions for naming ranks: they are few, they stand out, and their peers wait for them."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.medians import mean, median
from rankscope_analyzers.stragglers.view import View

MINIMUM_SECONDS = 0.003
"""Seconds per step: the time slice of a process on a shared core (3 ms, the base slice of Linux's
scheduler). A rank that is late by less may just share its core with another program."""

DOMINANCE = 2.0
"""Times the excess of any rank that is not accused: on a busy machine some rank is always slightly
late, but not by twice the next one for long."""

SHARE_OF_WORST = 0.5
"""Ranks with at least this fraction of the worst excess are accused with it."""

GRADED_DOMINANCE = 4.0
"""The same for ranks that are slow to different degrees, as the GPUs of a hot node are: what fades
out without such a gap is the noise of a busy machine."""

MAXIMUM_SHARE = 0.5
"""If more ranks than this are slow, there is no healthy majority to compare with."""

CLEAR_HALF = 0.1
"""Share of the step by which exactly half of the ranks must be late to be distinguished from the
other half if they do not fill their nodes: a smaller difference may be chance."""

MINIMUM_WAIT_SHARE = 0.25
"""A culprit's peers wait for it: at least this fraction of its excess must show as their
waiting."""


def accused_of(excess: Floats, flagged: Booleans) -> Booleans:
    """Return which of the slow ranks are accused: all above a gap, below which ranks are healthy.

    Without one, those near the worst are returned, and `is_conclusive` rejects them.

    Args:
        excess: seconds, or a share, that each rank needs beyond its peers.
        flagged: true for slow ones, at least one.
    """
    near = np.asarray(flagged & (excess >= SHARE_OF_WORST * float(excess[flagged].max())))
    ordered = np.sort(np.where(np.isfinite(excess), excess, 0.0), axis=None)[::-1]
    beyond = np.maximum(np.append(ordered[1:], 0.0), 0.0)
    first = max(int((ordered >= excess[near].min()).sum()) - 1, 0)
    gaps = ordered >= GRADED_DOMINANCE * beyond
    gaps[first] |= ordered[first] >= DOMINANCE * beyond[first]
    least = float(ordered[first + int(np.argmax(gaps[first:]))])
    reached = np.asarray(flagged & (excess >= least))
    return reached if least >= float(excess[flagged].min()) else near


def is_conclusive(view: View, excess: Floats, accused: Booleans) -> bool:
    """Return True if the evidence is sufficient to name ranks.

    Args:
        view: the newest steps.
        excess: (P, D, T) seconds per step that each rank needs beyond its peers.
        accused: (P, D, T) true for those that would be named.
    """
    known = np.isfinite(excess)
    suspects, rest = excess[accused & known], excess[~accused & known]
    if not len(suspects):
        return False
    least, next_one = float(suspects.min()), float(rest.max(initial=0.0))
    stands_out = least >= MINIMUM_SECONDS and least >= DOMINANCE * next_one
    return (
        stands_out and _are_few(view, accused, known, least) and peers_wait(view, excess, accused)
    )


def _are_few(view: View, accused: Booleans, known: Booleans, least: float) -> bool:
    """Return True if accused ranks are a minority; silent ranks count as healthy."""
    count, limit = int(accused.sum()), MAXIMUM_SHARE * view.shape.comparable_count
    if count != limit or count == 1 or not view.flat:
        return count <= limit
    nodes = view.shape.nodes
    apart = not set(nodes[accused].tolist()) & set(nodes[~accused & known].tolist())
    return apart or least >= CLEAR_HALF * view.step_seconds


def peers_wait(view: View, excess: Floats, accused: Booleans) -> bool:
    """Return True if the others spend the worst rank's excess waiting, or if that is unknown.

    The shortest wait alone accuses innocent ranks, and so does the longest compute alone: the
    culprit of a synchronous step shows both. If ranks also wait for tensor and pipeline peers, sync
    contains more than the wait for one rank.
    """
    if not view.flat or "sync" not in view.known:
        return True
    waited = mean(view.sync)
    if view.periodic_waits is not None:
        waited = waited + np.nan_to_num(view.periodic_waits)
    others = median(np.where(accused, np.nan, waited), (0, 1, 2)).ravel()[0]
    worst = int(np.argmax(np.where(accused & np.isfinite(excess), excess, -np.inf)))
    longer = float(others - waited.ravel()[worst])
    return not np.isfinite(longer) or longer >= MINIMUM_WAIT_SHARE * float(excess.ravel()[worst])
