"""The jobs of the benchmark: what is done to each, in steps of 0.07 s of two ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One job.

    Args:
        steps: that it makes.
        faults: as arguments of the script.
        start_seconds: that its processes take before they connect to each other.
    """

    steps: int
    faults: str = ""
    start_seconds: float = 0.0


CASES: Mapping[str, Case] = {
    "healthy": Case(600),
    "straggler": Case(500, "straggler:150:200:0.11"),
    "data": Case(500, "data:150:200:0.11"),
    "checkpoint": Case(450, "checkpoint:100:1:6,checkpoint:200:1:8,checkpoint:300:1:7"),
    "hang": Case(400, "hang:200:1:30"),
    "restart": Case(700, "checkpoint:120:1:0.05,restart:420:1:1", 18.0),
    "overlap": Case(500, "data:150:200:0.11,straggler:150:200:0.11"),
    "throughout": Case(400, "straggler:0:400:0.06"),
    "unprobed": Case(900, "checkpoint:150:1:0.05,restart:300:1:1,unprobed:450:1:1", 4.0),
}
"""By name. In `overlap` each step waits for both, one after the other."""
