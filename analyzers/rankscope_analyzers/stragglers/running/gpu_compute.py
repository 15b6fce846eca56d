"""Conclusion: a rank computes longer than its peers and, waiting least, makes them wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.peers import peer_median_by_stage
from rankscope_analyzers.numeric.row_statistics import column_median
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running import rank_faults
from rankscope_analyzers.stragglers.running.rank_finding import RankCause, finding

SLOW_SHARE = 0.3
"""Throttling comes and goes, so a GPU that is slow in a third of its steps is slow."""

EARLY_STEPS = 30
"""Usable steps that show what a rank's own silicon is like."""

SILICON_RANGE = (0.96, 1.04)
"""A rank's own history may explain this much: healthy GPUs of one model differ by a few per cent,
and a rank that was born slow must not be excused by its past."""

CAUSE = RankCause(
    kind="gpu_compute",
    column="compute_seconds",
    doing="computes {}",
    action="Compare clocks, power and temperature of that GPU with its peers; cordon the node if "
    "they differ, profile the rank if they do not.",
    runbook="docs/runbooks/RankscopeStraggler.md",
)


def analyze(frame: StepFrame) -> Sequence[Finding]:
    """Return a finding for each time in which a minority of ranks computed longer."""
    judged = frame.usable_only().timed_only()
    reference = peer_median_by_stage(judged.compute, judged.stages)
    # Of a step that was all waiting for a CPU nothing is left to compare.
    ratio = judged.compute / np.where(reference > 0, reference, np.nan)
    excess = judged.compute - reference * _own_pace(ratio)
    return [
        finding(judged, fault, judged.compute, CAUSE)
        for fault in rank_faults.find(judged, excess, SLOW_SHARE)
        if rank_faults.peers_wait(judged, fault)
    ]


def _own_pace(ratio: Floats) -> Floats:
    """Return (R,) how a rank's compute relates to its peers' by nature, within SILICON_RANGE."""
    pace = column_median(ratio[:EARLY_STEPS])
    return np.clip(np.where(np.isfinite(pace), pace, 1.0), *SILICON_RANGE)
