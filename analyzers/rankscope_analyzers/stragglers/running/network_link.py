"""Conclusion: some gradient groups transfer slower than they did, or one rank's link does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.row_statistics import column_median, row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running import baseline, transfer
from rankscope_analyzers.stragglers.running.cost import from_saved
from rankscope_analyzers.stragglers.running.rank_finding import (
    PAGE_COST,
    bounds,
    confidence,
    subject,
)
from rankscope_analyzers.stragglers.running.windows import Span
from rankscope_analyzers.text.wording import against

MAXIMUM_GROUP_SHARE = 0.6
"""When more groups than this are slow the fabric is, unless one rank visibly lags."""

MINIMUM_COST = 0.02
"""A slower exchange that takes less of the step is hidden behind the backward pass anyway."""

ACTION = (
    "Compare port errors, retransmits, link rate and NCCL transport of these ranks with their "
    "peers, and move the job off the node whose link differs."
)
RUNBOOK = "docs/runbooks/RankscopeSlowNetworkGroup.md"


def analyze(frame: StepFrame) -> Sequence[Finding]:
    """Return a finding for each time in which few groups, or one rank's link, became slower."""
    judged = frame.usable_only().timed_only()
    groups, times = transfer.group_transfer(judged)
    flagged, healthy = baseline.risen(judged, times)
    findings = (
        _finding(judged, span, groups, times, healthy)
        for span in baseline.lasting(judged, np.asarray(flagged.any(axis=1)))
    )
    return [found for found in findings if found is not None]


def _finding(
    frame: StepFrame, span: Span, groups: Integers, times: Floats, healthy: Floats
) -> Finding | None:
    rise = column_median(times[span.rows()]) - healthy
    slow = rise > baseline.MINIMUM_RISE * healthy
    saved = row_maximum(times[span.rows()] - healthy)
    cost = from_saved(frame, span, saved)
    worst = int(np.argmax(rise))
    members = np.flatnonzero(np.isin(frame.groups, groups[slow]))
    if cost.lost_fraction < MINIMUM_COST or not len(members):
        return None
    columns = transfer.slow_end(_within(frame, span), members)
    few = slow.sum() <= MAXIMUM_GROUP_SHARE * len(groups)
    if not columns and not few:
        return None
    who = subject(frame, columns[:2])
    since, until = bounds(frame, span)
    observed, expected = float(healthy[worst] + rise[worst]), float(healthy[worst])
    meaning = "transfer time of the slowest gradient group, against its own beginning"
    return Finding(
        kind="network_link",
        severity="page" if cost.lost_fraction >= PAGE_COST else "ticket",
        subject=who,
        summary=_summary(who.ranks, int(slow.sum()), len(groups), observed, expected),
        action=ACTION,
        evidence=(Evidence("sync_seconds", observed, expected, "seconds", meaning),),
        cost=cost,
        confidence=confidence(cost.lost_fraction) * (1.0 if columns else 0.5),
        runbook=RUNBOOK,
        since_unix_seconds=since,
        until_unix_seconds=until,
    )


def _within(frame: StepFrame, span: Span) -> StepFrame:
    inside = np.zeros(len(frame.step), dtype=np.bool_)
    inside[span.rows()] = True
    return frame.rows(inside)


def _summary(
    ranks: tuple[int, ...], slow: int, groups: int, observed: float, expected: float
) -> str:
    where = f"at rank {ranks[0]}" if ranks else f"in {slow} of {groups} gradient groups"
    return (
        f"the gradient exchange {where} takes {observed / expected:.2f}x its earlier time "
        f"({against(observed, expected)})"
    )
