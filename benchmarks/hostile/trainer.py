"""A job that trains during the attacks: a process that writes rings like probes, and checks them.

Started as a program: JOB, the rank that computes 1.6 times as long (-1 for none), and one directory
of rings for each node. It continues until its standard input ends; then it prints as JSON how many
steps each rank made, and how many of its files still hold what it wrote, byte by byte.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import standard_input
from ring_writer import PAGE, RECORD, RingWriter, header_page, record_bytes

RANKS_OF_A_NODE = 4
CAPACITY = 4096
PACE_NS = 250_000_000
"""Seconds per step: four a second, so that seconds show whether steps are seen."""

HISTORY = 480
"""Steps before the first look: two minutes."""

BEFORE_SLOW = 240
"""Steps of the start in which no rank is slow."""

COMPUTE_NS, DATA_NS, SLOWER = 120_000_000, 10_000_000, 1.6


class Rank:
    """One rank, with all that it wrote."""

    def __init__(self, folder: Path, rank: int, ranks: int, job: str, *, slow: bool) -> None:
        # A pod of another namespace than the agent's; its name is unknown until the pod runs.
        header = {
            "rank": rank,
            "local_rank": rank % RANKS_OF_A_NODE,
            "world_size": ranks,
            "local_world_size": RANKS_OF_A_NODE,
            "job_id": job,
            "capacity": CAPACITY,
            "created_unix_ns": time.time_ns() - (HISTORY + 10) * PACE_NS,
        }
        self.ring = RingWriter(folder, f"{1000 + rank}-1.ring", **header)
        size = self.ring.path.stat().st_size
        self._written = bytearray(header_page(**header).ljust(size, b"\0"))
        self._slow = slow
        self.steps = 0

    def step(self, ended_ns: int, slowest_ns: int) -> None:
        """Make a step that ends at a moment, waiting for the slowest rank."""
        self.steps += 1
        compute = self.compute_ns(self.steps)
        taken = DATA_NS + slowest_ns
        record = record_bytes(
            self.steps,
            start_unix_ns=ended_ns - taken,
            step_ns=taken,
            data_ns=DATA_NS,
            compute_ns=compute,
            sync_ns=taken - DATA_NS - compute,
            step=self.steps - 1,
        )
        self.ring.write_slot(self.steps, record)
        begin = PAGE + (self.steps - 1) % CAPACITY * RECORD.size
        self._written[begin : begin + RECORD.size] = record

    def compute_ns(self, step: int) -> int:
        """Return how long it computes in a step, which varies by a hundredth."""
        usual = COMPUTE_NS + (step * 7919 + self.ring.path.name.__hash__() % 97) % 1_200_000
        return int(usual * SLOWER) if self._slow and step > BEFORE_SLOW else usual

    @property
    def identical(self) -> bool:
        """Return True if its file holds what it wrote."""
        return self.ring.path.read_bytes() == bytes(self._written)


def started(job: str, slow: int, folders: Sequence[Path]) -> list[Rank]:
    """Start the ranks of a job, some on each node."""
    ranks = RANKS_OF_A_NODE * len(folders)
    return [
        Rank(folders[rank // RANKS_OF_A_NODE], rank, ranks, job, slow=rank == slow)
        for rank in range(ranks)
    ]


def all_step(ranks: Sequence[Rank], ended_ns: int) -> None:
    """Make a step of all ranks."""
    slowest = max(rank.compute_ns(rank.steps + 1) for rank in ranks)
    for rank in ranks:
        rank.step(ended_ns, slowest)


def ticks(ended: threading.Event) -> Iterator[int]:
    """Yield the moments at which steps end, until the event is set."""
    due = time.time_ns()
    while not ended.wait(max(0.0, (due - time.time_ns()) / 1e9)):
        yield due
        due += PACE_NS


def main() -> None:
    """Train until the standard input ends."""
    job, slow, *folders = sys.argv[1:]
    ranks = started(job, int(slow), [Path(folder) for folder in folders])
    now = time.time_ns()
    for number in range(HISTORY):
        all_step(ranks, now - (HISTORY - number) * PACE_NS)
    for moment in ticks(standard_input.end()):
        all_step(ranks, moment)
    identical = sum(rank.identical for rank in ranks)
    steps = {rank.steps for rank in ranks}
    sys.stdout.write(json.dumps({"files": len(ranks), "identical": identical, "steps": max(steps)}))


if __name__ == "__main__":
    main()
