"""Conclusion: a rank waits for a CPU, ready to run, and its peers wait for it.

Something else runs where it should: other programs of the node, more threads than CPUs, or a limit
on CPU time, which shows as waiting too. Its GPU and its input are then as good as those of others,
and the conclusions about these judge times that hold no such wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.numeric.peers import peer_median
from rankscope_analyzers.numeric.row_statistics import row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running import rank_faults
from rankscope_analyzers.stragglers.running.rank_finding import RankCause, finding
from rankscope_analyzers.stragglers.running.windows import PERSISTENCE_SECONDS

SLOW_SHARE = 0.3
"""Neighbours come and go as throttling does: who waits in a third of the steps is starved."""

TIMES_PEERS = 4.0
"""Ranks that share a crowded node all wait, and one of them longer than the others for a while: of
60 healthy jobs of a few seconds, on a machine with six times as many programs as CPUs, two had a
rank that waited at least twice as long as its peer. A CPU limit, or a CPU that is given to others,
makes it ten times as long and more."""

SHORTEST_SECONDS = PERSISTENCE_SECONDS
"""However little was observed: on a crowded node the scheduler lets one of two ranks wait for a
second or two, and then the other one."""

RESOLUTION_SECONDS = 1e-9
"""Of records: less than that is no work at all."""

CAUSE = RankCause(
    kind="host_transient",
    column="cpu_wait_seconds",
    doing="waits {} for a CPU",
    action="Find what else runs on its CPUs, and look at its pod's CPU limit; give it CPUs of "
    "its own, or start fewer threads. Its GPU is not at fault.",
    runbook="docs/runbooks/RankscopeHostStalls.md",
)


def analyze(frame: StepFrame) -> Sequence[Finding]:
    """Return a finding for each time in which a minority of ranks waited for CPUs."""
    judged = frame.usable_only()
    waited = judged.cpu_wait
    return [
        finding(judged, fault, waited, CAUSE, part=waited)
        for fault in rank_faults.find(judged, waited - peer_median(waited), SLOW_SHARE)
        if rank_faults.peers_wait(judged, fault)
        and not _is_passing(judged, fault)
        and not _is_shared(judged, fault)
    ]


def _is_passing(frame: StepFrame, fault: rank_faults.RankFault) -> bool:
    """Say whether it lasted too short to be told from bad luck."""
    return float(row_maximum(frame.step[fault.span.rows()]).sum()) < SHORTEST_SECONDS


def _is_shared(frame: StepFrame, fault: rank_faults.RankFault) -> bool:
    """Say whether those who are not accused wait for CPUs nearly as long, for what they do.

    On a crowded node who computes more waits more: there the compute is at fault and not the wait.
    """
    rows, accused = fault.span.rows(), fault.mask()
    waited = np.nansum(frame.cpu_wait[rows], axis=0)
    worked = np.nansum(frame.working()[rows], axis=0)
    ratio = waited / np.maximum(worked, RESOLUTION_SECONDS)
    return float(ratio[accused].min()) < TIMES_PEERS * float(np.median(ratio[~accused]))
