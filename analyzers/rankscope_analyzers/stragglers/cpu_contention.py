"""Jobs whose ranks wait for CPUs more than they work: nobody is to blame for certain.

A CPU limit on every pod, or nodes with more busy processes than CPUs, stop one rank and then
another. What the ranks need themselves is then the smaller part of what is seen, and whoever was
out of turn for longest looks slow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.records import CPU_WAIT

HIGH_SHARE = 0.7
"""Share of the time in which ranks could run that they wait for a CPU, from which on nobody is
named for sure. In twelve recorded runs of four ranks on two busy cores, of which all slow ranks
were found and no other, it was 0.34 to 0.67; ranks with CPUs of their own hardly wait."""


def cpu_wait_share(frame: StepFrame) -> float:
    """Return which share of the time in which ranks worked or could have they waited for a CPU.

    Over all ranks: the median rank's, so that one that starves does not speak for the others. 0
    where waits are not measured.
    """
    judged = frame.usable_only()
    worked = np.nansum(np.nan_to_num(judged.working()), axis=0)
    lost = np.nansum(judged.cpu_wait, axis=0)
    could = worked + lost
    known = could > 0
    return float(np.median(lost[known] / could[known])) if known.any() else 0.0


def note(share: float) -> tuple[str, ...]:
    """Return the sentence about a job that waits for CPUs most of the time, none of others."""
    if share < HIGH_SHARE:
        return ()
    return (
        f"Ranks wait for a CPU for {share:.0%} of the time in which they could run: look at the"
        " CPU limits of all pods and at what else runs on their nodes. Which rank is slow by itself"
        " cannot be told for sure.",
    )


def with_doubt(finding: Finding, share: float) -> Finding:
    """Return a finding as sure as it can be where ranks wait most of the time for a CPU.

    That a rank waits for CPUs far longer than the others is as sure as before.
    """
    waits = bool(finding.evidence) and finding.evidence[0].source == CPU_WAIT
    if share < HIGH_SHARE or waits or finding.confidence is None:
        return finding
    return replace(finding, confidence=finding.confidence * (1.0 - share))
