"""The cost of an agent's search for hung jobs, every ten seconds, with 64 ranks on its node.

Twice: while all ranks make steps, and when none does any longer; and the one-time cost of reading
each rank's state, as far as the node knows it (nobody answers for these rings).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ring_writer import create_ring

from rankscope_agent.sources.evidence.hang_recorder import LOOK_SECONDS
from rankscope_agent.sources.evidence.stalled_jobs import STANDS_SECONDS, StalledJobs
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource

RANKS = 64
RECORDS = 100
STEP_NS = 10**8
LOOKS = 20


@dataclass(frozen=True, slots=True)
class LookCost:
    """Medians of CPU seconds of one look, and of what else was measured."""

    going_on: float
    standing: float
    where: float


def measure() -> LookCost:
    """Write rings and look."""
    with tempfile.TemporaryDirectory(prefix="rankscope-look-") as name:
        folder = Path(name)
        for ring in [create_ring(folder, rank, RANKS) for rank in range(RANKS)]:
            for _ in range(RECORDS):
                ring.append(STEP_NS)
        rings = RingStepSource(folder, folder / "none", "node")
        jobs = StalledJobs(rings, RingSpanSource(rings))
        now = time.time()
        going_on = _cost(lambda: _expect(0, jobs.at(now)))
        standing = _cost(lambda: _expect(1, jobs.at(now + STANDS_SECONDS + 1)))
        where = _cost(lambda: len(_stalls(rings, now + STANDS_SECONDS).stalls(None)), 5)
        return LookCost(going_on, standing, where)


def _expect(count: int, found: Iterator[object]) -> None:
    if len(list(found)) != count:
        raise RuntimeError(f"expected {count} hung jobs")


def _stalls(rings: RingStepSource, now: float) -> StallSource:
    return StallSource(rings, Path("/proc"), lambda: now)


def _cost(look: Callable[[], object], looks: int = LOOKS) -> float:
    """Return the CPU seconds of this process in the median look."""
    costs = []
    for _ in range(looks):
        began = time.process_time()
        look()
        costs.append(time.process_time() - began)
    return statistics.median(costs)


def report(cost: LookCost) -> str:
    """Return the costs, those of looks as fractions of a core."""
    return (
        f"{RANKS} ranks: a search for hung jobs takes {cost.going_on * 1e3:.1f} ms of CPU time,"
        f" {cost.going_on / LOOK_SECONDS:.2%} of a core; {cost.standing * 1e3:.1f} ms if one"
        f" hangs; reading its ranks' state takes {cost.where * 1e3:.0f} ms, once"
    )
