"""Does an all-reduce take as long as the fabric budget of `rankscope preflight` predicts?

Four ranks in separate network namespaces, whose links are token buckets of several rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.fabric_links import RANKS, checked
from benchmarks.running_jobs.launch import ForkServer

from rankscope_analyzers.preflight.budget_check import leaving_bytes

RATES_MEGABITS = (50.0, 100.0, 200.0)
"""Slow enough that links, and not one machine's processors, determine the time."""

MESSAGE_BYTES = 8 << 20
FLAGS = ("--json", f"--sizes={MESSAGE_BYTES}", "--link-size=256K", "--seconds=4", "--backend=gloo")


@dataclass(frozen=True, slots=True)
class Reduction:
    """An all-reduce: the budget and the measured time, in seconds."""

    rate_megabits: float
    budget_seconds: float
    measured_seconds: float

    @property
    def ratio(self) -> float:
        """Return the measured time as a multiple of the budget."""
        return self.measured_seconds / self.budget_seconds


def measure() -> Sequence[Reduction]:
    """Reduce a message over links of each rate."""
    found = []
    with ForkServer(probed=False) as server:
        for rate in RATES_MEGABITS:
            (one,) = checked(server, None, "", rate, FLAGS)["all_reduce"]
            budget = leaving_bytes("all-reduce", RANKS, MESSAGE_BYTES) * 8 / (rate * 1e6)
            found.append(Reduction(rate, budget, one["seconds"]))
    return found


def report(found: Sequence[Reduction]) -> str:
    """Return measured times and budgets as text."""
    lines = [f"all-reduce of {MESSAGE_BYTES >> 20} MiB over {RANKS} nodes, against the budget:"]
    lines += [
        f"  {one.rate_megabits:4.0f} Mbit/s: {one.measured_seconds:.3f} s, budget"
        f" {one.budget_seconds:.3f} s, {one.ratio:.2f} times"
        for one in found
    ]
    return "\n".join(lines)
