"""Jobs whose ranks wait for CPUs more than they work: no rank can be named with certainty.

A CPU limit on every pod, or nodes with more busy processes than CPUs, stop one rank after another.
The ranks' own work is then the smaller part of what is measured, and the rank that waited longest
for a CPU looks slow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.records import CPU_WAIT

HIGH_SHARE = 0.7
"""Share of their runnable time that ranks wait for a CPU, from which on no rank is named with
certainty. Four ranks on two busy cores, where slow ranks are still found reliably, wait for 0.34 to
0.67 of it; ranks with their own CPUs hardly wait."""


def cpu_wait_share(frame: StepFrame) -> float:
    """Return the share of their runnable time that ranks waited for a CPU, 0 if not measured.

    It is the median over ranks, so that a single starved rank does not count for all.
    """
    judged = frame.usable_only()
    worked = np.nansum(np.nan_to_num(judged.working()), axis=0)
    lost = np.nansum(judged.cpu_wait, axis=0)
    could = worked + lost
    known = could > 0
    return float(np.median(lost[known] / could[known])) if known.any() else 0.0


def note(share: float) -> tuple[str, ...]:
    """Return a sentence about a job that waits for CPUs most of the time, nothing for others."""
    if share < HIGH_SHARE:
        return ()
    return (
        f"Ranks wait for a CPU for {share:.0%} of the time in which they could run: look at the"
        " CPU limits of all pods and at what else runs on their nodes. Which rank is slow by itself"
        " is uncertain.",
    )


def with_doubt(finding: Finding, share: float) -> Finding:
    """Return a finding with less confidence if ranks wait for a CPU most of the time.

    A rank that waits for CPUs far longer than the others is as certain as before.
    """
    waits = bool(finding.evidence) and finding.evidence[0].source == CPU_WAIT
    if share < HIGH_SHARE or waits or finding.confidence is None:
        return finding
    return replace(finding, confidence=finding.confidence * (1.0 - share))
