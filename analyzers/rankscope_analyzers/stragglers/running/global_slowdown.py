"""Conclusion: the whole job became slower and no rank or group is to blame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope_analyzers.findings.finding import Cost, Evidence, Finding, Subject
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.row_statistics import row_median
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running import baseline, transfer
from rankscope_analyzers.stragglers.running.cost import from_saved
from rankscope_analyzers.stragglers.running.rank_finding import PAGE_COST, bounds, confidence
from rankscope_analyzers.stragglers.running.windows import Span
from rankscope_analyzers.text.wording import against

MINIMUM_RANK_SHARE = 0.85
"""So many ranks (or groups) must have slowed down before "all" is the right word."""

MINIMUM_COST = 0.05
"""Below this a change of data explains a slower job as well as a fault does."""

RUNBOOK = "docs/runbooks/RankscopeGlobalSlowdown.md"
ACTION = (
    "Look for what all ranks share: power or clock caps, fabric congestion, CPU load on the "
    "nodes, a changed batch or sequence length."
)


def analyze(frame: StepFrame) -> Sequence[Finding]:
    """Return a finding for each time in which all ranks computed or exchanged more slowly."""
    judged = frame.usable_only().timed_only()
    _, times = transfer.group_transfer(judged)
    return [
        *_slower(judged, judged.compute, "compute_seconds", "computing"),
        *_slower(judged, times, "sync_seconds", "exchanging gradients"),
    ]


def _slower(frame: StepFrame, values: Floats, column: str, what: str) -> list[Finding]:
    flagged, healthy = baseline.risen(frame, values)
    everybody = np.asarray(flagged.mean(axis=1) > MINIMUM_RANK_SHARE)
    found = []
    for span in baseline.lasting(frame, everybody):
        observed = row_median(values[span.rows()])
        expected = float(np.nanmedian(healthy))
        cost = from_saved(frame, span, np.nan_to_num(observed - expected))
        if cost.lost_fraction < MINIMUM_COST:
            continue
        meaning = f"median over ranks of {what}, against the job's own beginning"
        evidence = Evidence(column, float(np.nanmedian(observed)), expected, "seconds", meaning)
        found.append(_finding(frame, span, cost, evidence, what))
    return found


def _finding(frame: StepFrame, span: Span, cost: Cost, evidence: Evidence, what: str) -> Finding:
    since, until = bounds(frame, span)
    return Finding(
        kind="global_slowdown",
        severity="page" if cost.lost_fraction >= PAGE_COST else "ticket",
        subject=Subject(frame.job_id, (), (), ()),
        summary=f"all ranks spend {evidence.observed / evidence.expected:.2f}x the earlier time "
        f"{what} ({against(evidence.observed, evidence.expected)})",
        action=ACTION,
        evidence=(evidence,),
        cost=cost,
        confidence=confidence(cost.lost_fraction),
        runbook=RUNBOOK,
        since_unix_seconds=since,
        until_unix_seconds=until,
    )
