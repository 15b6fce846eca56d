"""Jobs that stand still, as their rings show it, and what their node's agent knows of them."""

from __future__ import annotations

from pathlib import Path

from rankscope_agent.sources.evidence.log_tails import LogTails
from rankscope_agent.sources.evidence.node_evidence import NodeEvidence
from rankscope_agent.sources.evidence.ras_report import RasReports
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training.reader import RingStepSource
from ring_writer import NS, RingWriter

NOW = 1_800_000_000.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def standing_ring(folder: Path, name="7-8.ring", quiet=90.0, **header):
    folder.mkdir(exist_ok=True)
    ring = RingWriter(folder, name, created_unix_ns=round((NOW - 1000) * NS), **header)
    ring.step(start_unix_ns=round((NOW - quiet - 0.1) * NS))
    return ring


def evidence_of(rings: Path, clock, *, logs=None, kernel=(), patterns=(), ras=None):
    source = RingStepSource(rings, rings / "none", "n1", clock)
    stalls = StallSource(source, Path("/proc"), clock)
    tails = LogTails(logs or rings / "none", patterns)
    return NodeEvidence(source, stalls, Path("/proc"), RasReports(ras), kernel, tails, clock)
