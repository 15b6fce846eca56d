"""Rows of step records from an open ring: the newest ones, and those of its start."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from rankscope_agent.contract.model import LeftOut, RankIdentity, StepRow
from rankscope_agent.sources.training.cursor import MAX_CHUNK, Cursor, oldest_seq, read_record
from rankscope_agent.sources.training.files import OpenRing, RingDirectory, RingFile
from rankscope_agent.sources.training.format import (
    NOT_MEASURED,
    TIMING_MASK,
    UNKNOWN_SAMPLES,
    StepRecord,
)

NS = 10**9

CLOCK_STEP_SECONDS = 120.0
"""How far a node's clock may be set back during a job without missing records; NTP steps a clock at
its start, by seconds, and slews it afterwards."""


START_RECORDS, START_SECONDS = 64, 20.0
"""Minimum number of steps, and time, returned of each ring's start: twice what is used to determine
a job's pace after its slow first steps (12 steps, then 30 of them and ten seconds)."""

MOST_START_RECORDS = 4096
"""Of steps of 5 milliseconds these are 20 seconds."""

NEW_JOB_SECONDS = 1800.0
"""A rank that begins this long after its last step is assumed to belong to another job of the same
name."""


@dataclass(frozen=True, slots=True)
class RingAnswer:
    """The result of reading one ring; `newest` is the number of its newest record, 0 without one.

    `held` is the number of records that it still has. `active_unix_seconds` is when the step of the
    newest one ended or, without records, when the ring was created.
    """

    directory: RingDirectory
    file: RingFile
    created_unix_ns: int
    newest: int
    active_unix_seconds: float
    identity: RankIdentity
    held: int
    last_step_seconds: float | None = None
    last_start_unix_seconds: float | None = None


BESIDE_SECONDS = 30.0
"""Ranks that join others anew end their last step at most some seconds later than the first of them
has joined."""


def of_ranks(rings: Sequence[RingAnswer]) -> Sequence[RingAnswer]:
    """Return rings without those of processes that have joined others beside their job's ranks.

    An engine that answers prompts, started for reinforcement learning, numbers its processes from 0
    as well, and makes no steps. It has replaced no rank if that one goes on.
    """
    stepping = defaultdict(list)
    for ring in rings:
        if ring.newest:
            stepping[_job(ring)].append(ring)
    return [
        ring
        for ring in rings
        if ring.newest or not any(_goes_on_beside(rank, ring) for rank in stepping[_job(ring)])
    ]


def _goes_on_beside(rank: RingAnswer, other: RingAnswer) -> bool:
    one, two = rank.identity, other.identity
    since = rank.active_unix_seconds - other.created_unix_ns / NS
    return since > BESIDE_SECONDS and (one.rank == two.rank or one.world_size != two.world_size)


def _job(ring: RingAnswer) -> str:
    return ring.identity.job_id


Join = Callable[[Sequence[StepRecord]], Sequence[StepRecord]]
"""Adds the values of the ring's extension to records; stops at a record that it lacks."""

Rows = TypeVar("Rows")

RowReader = Callable[[OpenRing, Join, RingAnswer], Iterator[Rows]]
"""Yields rows of an open ring, one by one or several at once."""


LeaveOut = Callable[[LeftOut], None]
"""Is called with each rank whose older records do not fit into an answer."""


def may_have_rows(answer: RingAnswer, since: float) -> bool:
    """Return False if all steps of a ring began before a time, judging by its newest record.

    Such rings need not be opened again, and leave their share of an answer to others.
    """
    last = answer.last_start_unix_seconds
    return answer.newest > 0 and (last is None or last >= since - CLOCK_STEP_SECONDS)


def rows_since(
    ring: OpenRing,
    join: Join,
    answer: RingAnswer,
    since: float,
    most: int,
    leave_out: LeaveOut | None = None,
) -> Iterator[StepRow]:
    """Yield the newest records of a ring whose steps began at or after a time.

    Args:
        ring: an open ring.
        join: adds the values of its extension.
        answer: the result of reading it.
        since: Unix time.
        most: maximum number of records read.
        leave_out: is called if there are more of them.

    Raises:
        OSError: the ring cannot be read.
    """
    capacity = ring.header.capacity
    first = _first_seq(ring.descriptor, answer.newest, capacity, since)
    first = _within_share(ring, answer, first, since, most, leave_out)
    # What is written while rows are sent waits for the next query.
    limit = answer.newest - first + 1
    for records in Cursor(capacity, first).read(ring.descriptor, limit):
        joined = join(records)
        for record in joined:
            if round(record.start_unix_ns / NS, 6) >= since:
                yield _row(answer.identity, record)
        if len(joined) < len(records):
            return


def batches_from(
    ring: OpenRing,
    join: Join,
    answer: RingAnswer,
    first: int,
    since: float,
    most: int,
    leave_out: LeaveOut | None = None,
) -> Iterator[tuple[Sequence[StepRow], int]]:
    """Yield records of a ring from a number on, each with the number of the record after it.

    Args:
        ring: an open ring.
        join: adds the values of its extension.
        answer: the result of reading it.
        first: number of the first record that is wanted.
        since: Unix time; records of steps that began earlier are skipped. -inf for none.
        most: maximum number of records read; if there are more, the newest ones.
        leave_out: is called if there are more.

    Raises:
        OSError: the ring cannot be read.
    """
    capacity = ring.header.capacity
    if since > -math.inf:
        first = max(first, _first_seq(ring.descriptor, answer.newest, capacity, since))
    first = _within_share(ring, answer, first, since, most, leave_out)
    cursor = Cursor(capacity, first)
    for records in cursor.read(ring.descriptor, answer.newest - first + 1):
        joined = join(records)
        wanted = [one for one in joined if round(one.start_unix_ns / NS, 6) >= since]
        rows = [_row(answer.identity, record) for record in wanted]
        if len(joined) < len(records):
            yield rows, records[len(joined)].seq
            return
        yield rows, cursor.next_seq


def _within_share(
    ring: OpenRing,
    answer: RingAnswer,
    first: int,
    since: float,
    most: int,
    leave_out: LeaveOut | None,
) -> int:
    """Return the number of the first record within the share, and report if there are others."""
    cut = answer.newest - most
    if leave_out and cut >= first:
        newest = read_record(ring.descriptor, cut, ring.header.capacity)
        if newest is not None and newest.start_unix_ns / NS >= since:
            identity = answer.identity
            leave_out(LeftOut(identity.job_id, identity.rank, newest.start_unix_ns / NS))
    return max(first, cut + 1)


def rows_of_start(
    ring: OpenRing, join: Join, answer: RingAnswer, before: float, most: int
) -> Iterator[StepRow]:
    """Yield the first records of a ring, of steps that began before a time.

    Args:
        ring: an open ring.
        join: adds the values of its extension.
        answer: the result of reading it.
        before: Unix time.
        most: maximum number of records read.

    Raises:
        OSError: the ring cannot be read.
    """
    capacity = ring.header.capacity
    first = oldest_seq(answer.newest, capacity)
    limit = min(answer.newest - first + 1, most)
    count, began = 0, 0.0
    for records in Cursor(capacity, first).read(ring.descriptor, limit):
        joined = join(records)
        for record in joined:
            start = round(record.start_unix_ns / NS, 6)
            began = began if count else start
            if start >= before or (count >= START_RECORDS and start - began >= START_SECONDS):
                return
            count += 1
            yield _row(answer.identity, record)
        if len(joined) < len(records):
            return


def _first_seq(descriptor: int, newest: int, capacity: int, since: float) -> int:
    """Go back from the newest record, in large strides, to one from well before a time."""
    oldest = oldest_seq(newest, capacity)
    for seq in range(newest, oldest, -MAX_CHUNK):
        record = read_record(descriptor, seq, capacity)
        if record is not None and record.start_unix_ns / NS < since - CLOCK_STEP_SECONDS:
            return seq
    return oldest


def _row(identity: RankIdentity, record: StepRecord) -> StepRow:
    """Return a record in the order of `STEP_COLUMNS`.

    If the ring does not know its rank's groups, the layout is that of a data-parallel job: one
    gradient group of all ranks, and each rank has its own layers.
    """
    layout = (identity.dp_group, identity.tp_group, identity.pp_stage)
    dp_group, tp_group, pp_stage = (0, identity.rank, 0) if None in layout else layout
    return (
        identity.job_id,
        record.step,
        identity.rank,
        identity.node,
        identity.local_rank,
        round(record.start_unix_ns / NS, 6),
        round(record.step_ns / NS, 9),
        _seconds(record.data_ns),
        _seconds(record.compute_ns),
        _seconds(record.sync_ns),
        dp_group,
        tp_group,
        pp_stage,
        record.attempt,
        None if record.samples == UNKNOWN_SAMPLES else record.samples,
        record.flags & ~TIMING_MASK,
        record.timing_source,
        _seconds(record.cpu_wait_ns),
        _seconds(record.other_ns),
        record.microbatches,
        _seconds(record.checkpoint_ns),
        _seconds(record.evaluation_ns),
        _seconds(record.copies_ns),
        _seconds(record.host_late_ns),
        _seconds(record.loader_ns),
    )


def _seconds(duration_ns: int) -> float | None:
    return None if duration_ns == NOT_MEASURED else round(duration_ns / NS, 9)


def of_present_jobs(rings: Sequence[RingAnswer]) -> Iterator[RingAnswer]:
    """Yield rings except those of an earlier job of the same name that was over long before.

    Args:
        rings: by job and rank, of each rank the oldest first.
    """
    for _, several in groupby(rings, lambda r: (r.identity.job_id, r.identity.rank)):
        chain_of_runs: list[RingAnswer] = []
        for ring in several:
            before = chain_of_runs[-1].active_unix_seconds if chain_of_runs else math.inf
            if ring.created_unix_ns / NS - before > NEW_JOB_SECONDS:
                chain_of_runs.clear()
            chain_of_runs.append(ring)
        yield from chain_of_runs
