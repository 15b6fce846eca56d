"""Sums the step records of a node's ranks across process restarts; no I/O, no clock.

Sums are in whole nanoseconds, so that they do not drift however long a job runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from rankscope_agent.contract.model import HistogramValue, RankIdentity
from rankscope_agent.sources.training.checkpoint_writers import CheckpointWriters
from rankscope_agent.sources.training.format import (
    NOT_MEASURED,
    UNKNOWN_SAMPLES,
    RingHeader,
    StepRecord,
)
from rankscope_agent.sources.training.reported_totals import SignalTotals
from rankscope_agent.sources.training.restart_ratios import RestartRatios
from rankscope_agent.sources.training.samples import SampledShares
from rankscope_agent.sources.training.span_totals import SpanTotals
from rankscope_agent.sources.training.spans import SpanPosition
from rankscope_agent.sources.training.starts import RankStart

NS = 10**9

BUCKETS_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0)
"""Eleven bounds and +Inf: from a small model's 5 ms to two minutes for a step of a very large one
or a checkpoint, closest together at 50 ms to 2.5 s, where most training steps are."""

_BUCKETS_NS = tuple(round(bound * NS) for bound in BUCKETS_SECONDS)


LONGEST_WAIT_RUNS = 60
"""Totals are shown after as many runs even if the rings have not been read to their end: a minute.
Full rings of a node of eight GPUs are read within ten runs."""


ENDED_JOB_SECONDS = 600.0
"""How long an ended job's series stay: two of the longest scrape intervals in use (5 minutes), so
that its last values are seen, but no longer, because they would look like a hang."""

MAX_POSITIONS = 32
"""Rings of a rank whose positions are remembered, the newest ones: a probe keeps 16 of processes
that have ended."""


class Position(NamedTuple):
    """Up to where a ring is in the totals.

    Args:
        created_ns: when the ring was created, in nanoseconds of Unix time.
        seq: number of the newest record that is.
        spans: which of its spans are.
    """

    created_ns: int
    seq: int
    spans: SpanPosition


class Histogram:
    """Counts of durations in the buckets of `BUCKETS_SECONDS`, and their sum."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_NS) + 1)
        self.sum_ns = 0

    def observe(self, durations_ns: Sequence[int]) -> None:
        """Count measured durations."""
        for duration_ns in durations_ns:
            self.counts[bisect_left(_BUCKETS_NS, duration_ns)] += 1
        self.sum_ns += sum(durations_ns)

    def value(self) -> HistogramValue:
        """Return the counts as Prometheus expects them."""
        buckets, total = [], 0
        for bound, count in zip(BUCKETS_SECONDS, self.counts, strict=False):
            total += count
            buckets.append((bound, total))
        return HistogramValue(tuple(buckets), total + self.counts[-1], self.sum_ns / NS)


class RankTotals:
    """The totals of one rank of a job; None until something has been measured.

    `identity`, `alive`, `ended_unix_seconds`, `last` and `start` are those of the rank's newest
    process, totals those of all. `alive` is None once its ring is read no longer. `spans` and
    `signals` are None if none of its probes keeps any. `shared_unix_ns` is when it last wrote a
    checkpoint file that another rank wrote as well. `positions` state up to where its rings are in
    the totals, `MAX_POSITIONS` at most.
    """

    __slots__ = (
        "alive",
        "compute_ns",
        "cpu_wait_ns",
        "created_unix_ns",
        "data_ns",
        "ended_unix_seconds",
        "identity",
        "last",
        "lost",
        "other_ns",
        "positions",
        "restarts",
        "samples",
        "shared_unix_ns",
        "shares",
        "signals",
        "spans",
        "start",
        "step_ns",
        "steps",
        "sync_ns",
    )

    def __init__(self, identity: RankIdentity, created_unix_ns: int) -> None:
        self.identity = identity
        self.created_unix_ns = created_unix_ns
        self.alive: bool | None = identity.alive
        self.ended_unix_seconds: float | None = None
        self.last: StepRecord | None = None
        self.steps = 0
        self.lost = 0
        self.step_ns = 0
        self.data_ns: int | None = None
        self.compute_ns: int | None = None
        self.sync_ns: int | None = None
        self.other_ns: int | None = None
        self.cpu_wait_ns: int | None = None
        self.samples: int | None = None
        self.spans: SpanTotals | None = None
        self.start = RankStart()
        self.signals: SignalTotals | None = None
        self.shares = SampledShares()
        self.restarts = RestartRatios()
        self.shared_unix_ns: int | None = None
        self.positions: dict[str, Position] = {}

    def identify(self, identity: RankIdentity, created_unix_ns: int) -> None:
        """Take over a process's identity, unless the known one is newer."""
        if created_unix_ns > self.created_unix_ns:
            self.created_unix_ns = created_unix_ns
            self.ended_unix_seconds = None
            self.last = None
        if created_unix_ns == self.created_unix_ns:
            self.identity = identity
            self.alive = identity.alive

    def note_unread(self) -> None:
        """Forget the state of its newest process, whose ring is read no longer; totals stay."""
        self.alive = self.ended_unix_seconds = self.last = None
        if self.spans:
            self.spans.note_open(())

    def add(
        self, records: Sequence[StepRecord], created_unix_ns: int, counted: int = 0
    ) -> Sequence[StepRecord]:
        """Add records of one process, in order.

        Compute and sync of steps between samples are those of the newest sample.

        Args:
            records: of the process.
            created_unix_ns: when its ring was created.
            counted: records up to this number are in the totals already, and only show how the
                rank ran last.

        Returns:
            The records that were not in the totals, those between samples with these values.
        """
        known = records
        if any(record.sampled for record in records):
            known = list(self.shares.completed(records))
        first = bisect_right(records, counted, key=_seq)
        self._sum(records[first:], known[first:])
        self.restarts.note_batches(_counted(records), created_unix_ns)
        if created_unix_ns == self.created_unix_ns:
            self.last = records[-1]
        return known[first:]

    def note_position(self, key: str, position: Position) -> None:
        """Record up to where one of its rings is in the totals."""
        self.positions[key] = position
        if len(self.positions) > MAX_POSITIONS:
            del self.positions[min(self.positions, key=lambda one: self.positions[one].created_ns)]

    def _sum(self, records: Sequence[StepRecord], known: Sequence[StepRecord]) -> None:
        """Add records; `known` are the same with compute and sync as far as they are known."""
        self.steps += len(records)
        self.step_ns += sum(record.step_ns for record in records)
        self.data_ns = _plus(self.data_ns, [record.data_ns for record in records])
        self.compute_ns = _plus(self.compute_ns, [record.compute_ns for record in known])
        self.sync_ns = _plus(self.sync_ns, [record.sync_ns for record in known])
        self.other_ns = _plus(self.other_ns, [record.other_ns for record in records])
        self.cpu_wait_ns = _plus(self.cpu_wait_ns, [record.cpu_wait_ns for record in records])
        self.samples = _plus(self.samples, _counted(records))


def _seq(record: StepRecord) -> int:
    return record.seq


def _counted(records: Sequence[StepRecord]) -> Sequence[int]:
    """Return the total samples of records, as far as known."""
    return [record.samples for record in records if record.samples != UNKNOWN_SAMPLES]


def _plus(total: int | None, values: Sequence[int]) -> int | None:
    """Add the measured values."""
    measured = [value for value in values if value != NOT_MEASURED]
    return (total or 0) + sum(measured) if measured else total


class JobTotals:
    """The ranks of a job on this node, in any number of replica groups, and their steps together.

    `active_unix_seconds` is when one of its processes was last known to be alive. `counted` are the
    ranks whose totals include all that their rings held when the agent found them, None is all
    ranks together; `waited` is the number of runs that they took.
    """

    __slots__ = (
        "active_unix_seconds", "counted", "latency", "ranks", "replica_groups", "samples", "sync",
        "waited", "writers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ranks: dict[int, RankTotals] = {}
        self.latency = Histogram()
        self.sync = Histogram()
        self.samples: int | None = None
        self.active_unix_seconds = 0.0
        self.writers = CheckpointWriters()
        self.replica_groups = 1
        self.counted: set[int | None] = set()
        self.waited = 0

    def note_counted(self, behind: Set[int]) -> None:
        """Record which ranks' totals are complete by now; once they are, they remain so.

        Prometheus takes the first value of a counter for no increase, but a value that grows while
        the steps of hours are read for steps of this moment.

        Args:
            behind: ranks with a ring that has not been read to its end yet.
        """
        if behind and None not in self.counted:
            self.waited += 1
        if self.waited > LONGEST_WAIT_RUNS:
            behind = frozenset()
        self.counted &= {None, *self.ranks}
        self.counted.update(self.ranks.keys() - behind)
        if not behind:
            self.counted.add(None)

    def rank(self, identity: RankIdentity, created_unix_ns: int) -> RankTotals:
        """Return the totals of a rank, new ones if it is unknown."""
        totals = self.ranks.get(identity.rank)
        if totals is None:
            totals = self.ranks[identity.rank] = RankTotals(identity, created_unix_ns)
        totals.identify(identity, created_unix_ns)
        return totals

    def present(self) -> Sequence[tuple[int, RankTotals]]:
        """Return the ranks of the job by its newest process; others left when it shrank."""
        newest = max(self.ranks.values(), key=lambda rank: rank.created_unix_ns, default=None)
        size = newest.identity.world_size if newest else None
        return [(n, rank) for n, rank in self.ranks.items() if not rank.identity.left(size)]

    def observe(self, records: Sequence[StepRecord]) -> None:
        """Count steps of any of the ranks, including those of ranks that leave later."""
        self.latency.observe([record.step_ns for record in records])
        self.sync.observe([record.sync_ns for record in records if record.sync_ns != NOT_MEASURED])
        self.samples = _plus(self.samples, _counted(records))


def note_unread(jobs: Mapping[str, JobTotals], header: RingHeader) -> None:
    """Record that a ring is read no longer, so that no old state of its rank stays."""
    job = jobs.get(header.job_id)
    rank = job.ranks.get(header.rank) if job is not None else None
    if rank is not None and rank.created_unix_ns == header.created_unix_ns:
        rank.note_unread()
