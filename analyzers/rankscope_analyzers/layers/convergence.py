"""The state of a job's loss in one word, from its findings and the levels of its losses. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.metrics.watch import CONVERGENCE_STATUSES
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers import learning
from rankscope_analyzers.layers.rank_locations import by_rank

NOT_FINITE, DIVERGING, JUMPED, ABOVE_LOWEST, AT_LOWEST = CONVERGENCE_STATUSES

OF_FINDINGS = {
    learning.NOT_FINITE: NOT_FINITE,
    learning.DIVERGING: DIVERGING,
    learning.JUMP: JUMPED,
}
"""The worst first: one is reported."""

NEAR = 0.05
"""Fraction of the lowest level: an average of twenty losses moves by a few per cent without a
trend."""


def status(found: Iterable[Finding], observed: Observed, job_id: str) -> str | None:
    """Return one of `CONVERGENCE_STATUSES`, None if the job reports too few losses.

    Args:
        found: the job's findings; those that are over do not count.
        observed: series with the levels of the ranks' losses. The rank farthest above its lowest
            level counts.
        job_id: the job.
    """
    kinds = {finding.kind for finding in found if finding.until_unix_seconds is None}
    for kind, word in OF_FINDINGS.items():
        if kind in kinds:
            return word
    lowest = by_rank(observed, reported.LOSS_LOWEST, job_id)
    levels = by_rank(observed, reported.LOSS_LEVEL, job_id)
    above = [
        series.last > lowest[rank].last + NEAR * abs(lowest[rank].last)
        for rank, series in levels.items()
        if rank in lowest
    ]
    if not above:
        return None
    return ABOVE_LOWEST if any(above) else AT_LOWEST
