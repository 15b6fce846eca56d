"""Check: a rank waits for a CPU, ready to run, and its peers wait for it.

Something else runs on its CPUs: other programs of the node, more threads than CPUs, or a CPU limit,
which shows as waiting too. Its GPU and its input are not at fault: the checks of these judge times
without such waits.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.medians import mean, reference, typical
from rankscope_analyzers.stragglers import attribution
from rankscope_analyzers.stragglers.view import COST_STEPS, Candidate, View

MINIMUM_COST = 0.025
"""Share of the step, as for slow input."""

SLOW_SHARE = 0.3
"""Noisy neighbours come and go, as throttling does: a rank that waits in 30 % of the steps is
starved."""

TIMES_PEERS = 4.0
"""On a crowded node all ranks wait, and one of them may wait twice as long as the others for a few
seconds. A CPU limit, or a CPU that others occupy, makes it ten times as long or more."""

RESOLUTION_SECONDS = 1e-9
"""Resolution of records: smaller values mean no work at all."""


def starved_ranks(view: View) -> Candidate | None:
    """Return the ranks that wait for CPUs far longer than the others."""
    waited = view.cpu_wait
    if waited is None or view.shape.world < 2:
        return None
    usual = reference(waited, (1, 2, 3))
    excess = mean(waited - usual)
    limit = max(MINIMUM_COST * view.step_seconds, attribution.MINIMUM_SECONDS)
    if not np.fmax.reduce(excess, axis=None) > limit:
        return None
    often = mean(np.where(waited - usual > limit / 2, 1.0, 0.0)) > SLOW_SHARE
    flagged = np.asarray((np.nan_to_num(excess) > limit) & often)
    if not flagged.any():
        return None
    worst = float(excess[flagged].max())
    accused = attribution.accused_of(excess, flagged)
    if not attribution.is_conclusive(view, excess, accused) or _is_shared(view, waited, accused):
        return None
    order = np.argsort(-np.where(accused, excess, -np.inf).ravel(), kind="stable")
    named = tuple(int(position) for position in order[: int(accused.sum())])
    longest = np.fmax.reduce((waited - usual)[-COST_STEPS:].reshape(-1, excess.size), axis=1)
    cost = float(mean(np.maximum(longest, 0.0) / view.duration[-COST_STEPS:]))
    middle = typical(usual)
    candidate = Candidate(
        "host_transient", cost, named, -1, worst + middle, middle, shown_by="cpu_wait"
    )
    return candidate.with_extent((waited - usual).reshape(len(waited), -1)[:, named[0]])


def _is_shared(view: View, waited: Floats, accused: Booleans) -> bool:
    """Return True if ranks that are not accused wait nearly as long, relative to their work.

    On a crowded node a rank that computes more waits more: then the compute is at fault.
    """
    worked = np.nan_to_num(view.compute) + np.nan_to_num(view.input)
    ratio = np.nansum(waited, axis=0) / np.maximum(worked.sum(axis=0), RESOLUTION_SECONDS)
    return float(ratio[accused].min()) < TIMES_PEERS * float(np.median(ratio[~accused]))
