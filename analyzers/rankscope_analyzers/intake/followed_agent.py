"""The state of an agent whose step records are followed, and where its records go."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope_analyzers.intake.job_ownership import Source
from rankscope_analyzers.intake.left_out import MOST_RANKS as MOST_LEFT_OUT
from rankscope_analyzers.intake.step_columns import Head, Ring, StepColumns
from rankscope_analyzers.intake.step_windows import JobWindow, Writer
from rankscope_analyzers.intake.unread_counts import Unread
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers

AWAITED_SECONDS = 120.0
"""For an older agent, a rank that is this far behind its newest one is not queried again."""

MOST_RANKS = 1024
"""Ranks of an older agent that are remembered: as many as agents read rings."""

MOST_TIMINGS = 16
"""Names of timing sources that are read of one agent."""


@dataclass(slots=True)
class Route:
    """Where the records of some rings of an agent go.

    Args:
        job_id: of their job.
        rings: their indices.
        inside: (rings of the agent,) True for these.
        window: of the job, once records were added to it.
        writers: (rings of the agent,) numbers that the window gave them.
        timings: numbers that it gave timing sources, and NaN for all others.
    """

    job_id: str
    rings: Sequence[int]
    inside: Booleans
    window: JobWindow | None
    writers: Integers
    timings: Floats

    @classmethod
    def of(cls, job_id: str, rings: Sequence[int], count: int) -> Route:
        """Return the route of these rings, of `count` in all."""
        inside = np.zeros(count, dtype=np.bool_)
        inside[list(rings)] = True
        return cls(job_id, rings, inside, None, np.full(count, -1, dtype=np.int64), np.empty(0))

    def lead_to(self, window: JobWindow, columns: StepColumns, placed: str | None) -> None:
        """Send records to a window."""
        for index in self.rings:
            self.writers[index] = window.number(_writer(columns.rings[index], placed))
        names = columns.timing_sources[:MOST_TIMINGS]
        self.timings = np.array([*map(window.timing, names), math.nan], dtype=np.float64)
        self.window = window


@dataclass(slots=True)
class FollowedAgent:
    """The state of one agent.

    Args:
        in_blocks: True if it sends columns; None until it has answered.
        knows_shards: True if it can be queried for the jobs of one shard; older ones return all.
        rings: in its last response.
        head: of its last response, if it sends columns.
        routes: where its records go, and the rings and refusals from which that was derived.
        cursors: number of the record to request next, by ring.
        newest: when the newest record of each ring began.
        left_out: ranks whose older records did not fit, those that it named last at the end.
        unread: rows of its last response with such rows that could not be read.
        unread_at: monotonic time of that response.
        blind: True if its newest records lack sync time.
        failure: why it did not answer last, empty if it did.
        failures: consecutive ones.
        retry: monotonic time before which it is not queried again.
        answered: monotonic time of its last response; before the first, of when it was listed.
    """

    in_blocks: bool | None = None
    knows_shards: bool = True
    rings: tuple[Ring, ...] = ()
    head: Head | None = None
    routes: Sequence[Route] = ()
    routed: tuple[tuple[Ring, ...], frozenset[Source]] | None = None
    cursors: dict[str, int] = field(default_factory=dict)
    newest: dict[str, float] = field(default_factory=dict)
    left_out: dict[tuple[str, int], float] = field(default_factory=dict)
    unread: Unread = field(default_factory=dict)
    unread_at: float = -math.inf
    blind: bool = False
    failure: str = ""
    failures: int = 0
    retry: float = -math.inf
    answered: float = field(default_factory=time.monotonic)

    @property
    def known(self) -> bool:
        """Return True if it has answered."""
        return self.in_blocks is not None

    def since(self, oldest: float) -> float:
        """Return the time from which on an older agent is queried: the slowest rank decides."""
        newest = max(self.newest.values(), default=oldest)
        awaited = [start for start in self.newest.values() if start >= newest - AWAITED_SECONDS]
        return max(oldest, min(awaited, default=oldest))

    def take(self, columns: StepColumns, oldest: float, now: float) -> None:
        """Record an agent's rings; JSON names only those with new records.

        Args:
            columns: its response.
            oldest: Unix time; what was left out before it is forgotten.
            now: Unix time; pods can write steps that begin later.
        """
        if columns.in_blocks:
            self.rings, self.head = columns.rings, columns.head
        else:
            by_name = {ring.name: ring for ring in (*self.rings, *columns.rings)}
            self.rings = tuple(by_name.values())[-MOST_RANKS:]
        self.in_blocks = columns.in_blocks
        if self.left_out or columns.left_out:
            before = {rank: one for rank, one in self.left_out.items() if one >= oldest}
            known = {rank: one for rank, one in before.items() if rank not in columns.left_out}
            known |= {rank: min(one, now) for rank, one in columns.left_out.items()}
            self.left_out = dict([*known.items()][-MOST_LEFT_OUT:])
        if columns.unread:
            self.unread, self.unread_at = columns.unread, time.monotonic()


def _writer(ring: Ring, placed: str | None) -> Writer:
    """Return the writer of a ring's records; without groups it is a data-parallel job's rank."""
    groups = [_whole(ring.rank.get(name)) for name in ("dp_group", "tp_group", "pp_stage")]
    rank = int(ring.rank["rank"])
    dp_group, tp_group, pp_stage = (0, rank, 0) if None in groups else groups
    node = placed if placed is not None else str(ring.rank["node"])
    gpu = _whole(ring.rank.get("local_rank"))
    return Writer(rank, node, gpu, dp_group or 0, tp_group or 0, pp_stage or 0)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 2**53 else None
