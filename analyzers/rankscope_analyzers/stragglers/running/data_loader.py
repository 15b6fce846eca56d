"""Conclusion: a rank waits for its input longer than its peers and they wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.numeric.peers import peer_median
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running import rank_faults
from rankscope_analyzers.stragglers.running.rank_finding import RankCause, finding

SLOW_SHARE = 0.6
"""Input that is slow in fewer steps than this is a prefetch queue running dry now and then."""

WORKERS = 8
"""Steps over which a wait is spread: slow loader workers finish their batches together, so the wait
of as many steps as there are workers falls on one of them. Eight workers a rank are usual."""

CAUSE = RankCause(
    kind="data_loader",
    column="data_seconds",
    doing="waits {} for input",
    action="Check that rank's input: its storage mount, loader workers and CPU share.",
    runbook="docs/runbooks/RankscopeStragglerData.md",
)


def analyze(frame: StepFrame) -> Sequence[Finding]:
    """Return a finding for each time in which a minority of ranks had slow input."""
    judged = frame.usable_only()
    excess = judged.data - peer_median(judged.data)
    return [
        finding(judged, fault, judged.data, CAUSE)
        for fault in rank_faults.find(judged, excess, SLOW_SHARE, WORKERS)
    ]
