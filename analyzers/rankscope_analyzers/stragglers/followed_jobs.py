"""Judge running jobs poll after poll: each poll adds the new records to the job's state.

A poll returns the records of the last half hour. Records that no earlier poll added go into the
state of the job as soon as no earlier record of any rank can be missing; the newest ones are judged
by a copy of the state. A job is therefore compared with its own beginning, however long ago, and an
incident stays the same from poll to poll.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import (
    CLOCK,
    DURATIONS,
    MAXIMUM_RANK,
    Dropped,
    RecordError,
)
from rankscope_analyzers.steps.rows import REQUIRED, USED
from rankscope_analyzers.steps.tables import ColumnTable, FrameTable
from rankscope_analyzers.stragglers.feed import Detection, Feed
from rankscope_analyzers.stragglers.incidents import Incident

MAXIMUM_LAG_SECONDS = 120.0
"""A rank that is further behind the newest one is no longer awaited: its agent does not answer, or
it is gone. Four polls at the watch's default interval."""

MAXIMUM_LAG_STEPS = 3.0
"""Nor is a rank that is this many steps behind, if steps take longer."""

WAITING_STEPS = 4
"""Steps that may wait for late ranks before the newest are judged without these: as many as lie
between two evaluations of the detector."""

NEW_JOB_SECONDS = 1800.0
"""A job that returns after a longer silence is treated as another one of the same name: its batch
or its model may have changed."""

ABSENT_POLLS = 60
"""Polls without a job after which it is forgotten: half an hour at the watch's default interval."""

MAXIMUM_JOBS = 4096
"""Jobs that are remembered; those not seen for longest are forgotten first."""

NO_RECORDS = ColumnTable({}, np.empty(0, dtype=np.int64), ())


class FollowedJobs:
    """The state of many running jobs; bounded memory.

    `first_steps` are the seconds that first steps of these jobs took: agents report those that are
    long over only at the first look.
    """

    __slots__ = ("_jobs", "_poll", "_waiting", "first_steps")

    def __init__(self) -> None:
        self.first_steps: dict[str, float] = {}
        self._waiting: dict[str, ColumnTable] = {}
        self._jobs: dict[str, FollowedJob] = {}
        self._poll = 0

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self._jobs)

    @property
    def polls(self) -> int:
        """Return the number of polls."""
        return self._poll

    def jobs(self) -> Iterator[tuple[str, FollowedJob]]:
        """Yield each job by name, those not seen for longest first."""
        yield from self._jobs.items()

    def restore(self, jobs: Mapping[str, FollowedJob], polls: int) -> None:
        """Continue with the jobs of another instance.

        Args:
            jobs: in the order of `jobs()`.
            polls: their number so far.
        """
        self._jobs, self._poll, self._waiting = dict(jobs), polls, {}

    def start_poll(self) -> None:
        """Start a poll: forget jobs that have not been seen for long."""
        self._poll += 1
        for name, known in list(self._jobs.items()):
            if self._poll - known.last_poll > ABSENT_POLLS:
                del self._jobs[name]
                self._waiting.pop(name, None)
        if len(self.first_steps) > MAXIMUM_JOBS:
            self.first_steps = {
                name: took for name, took in self.first_steps.items() if name in self._jobs
            }

    def update(
        self, name: str, records: pd.DataFrame, job: Layout, start: pd.DataFrame | None = None
    ) -> Detection:
        """Add the new records of a job; return its incidents as of the newest record.

        Args:
            name: of the job.
            records: all that the poll returned, in any order, added by earlier polls or not.
            job: its layout.
            start: its first records, if the poll returned them.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        known = self._jobs.pop(name, None)
        table = columns_of(records)
        if known is None or known.is_other_job(table):
            known = FollowedJob(job, start)
        detection = known.update(table)
        self._keep(name, known)
        return detection

    def follow(
        self, name: str, fresh: ColumnTable, job: Layout, start: pd.DataFrame | None = None
    ) -> Detection:
        """Add records of a job that no earlier call had; return its incidents as of the newest.

        Args:
            name: of the job.
            fresh: in any order; may be none.
            job: its layout.
            start: its first records, if known.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        known, waiting = self._jobs.pop(name, None), self._waiting.pop(name, NO_RECORDS)
        if known is None or known.is_other_job(fresh):
            known, waiting = FollowedJob(job, start), NO_RECORDS
        detection, self._waiting[name] = known.follow(fresh, waiting)
        self._keep(name, known)
        return detection

    def knows(self, name: str) -> bool:
        """Return True if a job is followed."""
        return name in self._jobs

    def _keep(self, name: str, known: FollowedJob) -> None:
        """Keep a job, after all others; not at all if its records made an analyzer raise."""
        known.last_poll = self._poll
        self._jobs[name] = known
        while len(self._jobs) > MAXIMUM_JOBS:
            forgotten = next(iter(self._jobs))
            del self._jobs[forgotten]
            self._waiting.pop(forgotten, None)


class FollowedJob:
    """The state of one running job.

    Args:
        job: its layout.
        start: its first records, from before the first poll.
    """

    __slots__ = (
        "_awaited_count", "_awaited_since", "_feed", "_judged_until", "_newest", "_newest_taken",
        "_pace", "last_poll",
    )  # fmt: skip

    def __init__(self, job: Layout, start: pd.DataFrame | None = None) -> None:
        self._feed = Feed(job)
        if start is not None:
            with suppress(RecordError):  # the start is optional
                self._feed.add(FrameTable(start))
        self._judged_until = self._pace = self._awaited_since = -np.inf
        self._awaited_count = 0
        self._newest: Floats = np.full(job.world, -np.inf)
        self._newest_taken: Floats = np.full(job.world, -np.inf)
        self.last_poll = 0

    def is_other_job(self, records: ColumnTable) -> bool:
        """Return True if the records are from another job of this name, or from another time."""
        starts = _starts(records)
        new = starts[starts >= self._judged_until]
        if len(new):
            return self._pace + NEW_JOB_SECONDS < float(new.min())
        return len(starts) > 0 and bool(np.nanmax(starts) < self._judged_until - NEW_JOB_SECONDS)

    def update(self, records: ColumnTable) -> Detection:
        """Add new records; return the incidents as of the newest of these records.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        newest = self._take(records)
        starts = _starts(records)
        detection = self._feed.peek(newest)
        return _ended_after(detection, float(np.nanmin(starts)) if len(starts) else -np.inf)

    def follow(self, fresh: ColumnTable, waiting: ColumnTable) -> tuple[Detection, ColumnTable]:
        """Add records that were not there before; return the incidents as of the newest ones.

        A copy of the state judges records that wait for other ranks only if they are many, or if
        nothing else arrives.

        Args:
            fresh: may be none.
            waiting: what earlier calls returned.

        Returns:
            The incidents, and the records that wait for those of other ranks.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        records = waiting.followed_by(fresh)
        if len(records):
            records = self._take(records)
        many = len(records) + self._feed.held > WAITING_STEPS * self._awaited_count
        detection = self._feed.latest() if len(fresh) and not many else None
        if detection is None:
            peeked = self._feed.peek(records if len(records) else None)
            detection = self._without_unseen_ends(peeked)
        return detection, records

    def _without_unseen_ends(self, detection: Detection) -> Detection:
        """Keep incidents open whose end nobody has seen.

        While an agent is restarted, the newest steps are judged without the ranks of its node. That
        none of them shows a slow rank is no evidence about the missing ranks.
        """
        incidents = tuple(
            replace(one, until=None) if self._awaits_all_of(one) else one
            for one in detection.incidents
        )
        return replace(detection, incidents=incidents)

    def _awaits_all_of(self, incident: Incident) -> bool:
        """Return True if records of an incident's ranks are awaited from before its end."""
        ranks = [rank for rank in incident.ranks if rank < len(self._newest)]
        if incident.until is None or not ranks:
            return False
        newest = self._newest[ranks]
        return bool(np.all((newest >= self._awaited_since) & (newest < incident.until)))

    def _take(self, records: ColumnTable) -> ColumnTable:
        """Judge the records that are due, with all steps that are complete; return the rest."""
        step_records.require(records.columns, REQUIRED)
        starts, rank = _starts(records), _ranks(records)
        new, due = self._due(records, starts, rank)
        if due.any():
            self._feed.add(records.at(due))
        awaited = np.flatnonzero(self._newest >= self._awaited_since)
        self._awaited_count = len(awaited)
        self._feed.release(awaited)
        return records.at(new & ~due)

    def _due(
        self, records: ColumnTable, starts: Floats, rank: Integers
    ) -> tuple[Booleans, Booleans]:
        """Return which records were not judged before, and which of these are due now."""
        self._count_late(starts, rank)
        new = ~(starts < self._judged_until)
        before, self._judged_until = (
            self._judged_until,
            self._complete_until(starts, rank, new, records),
        )
        due = (starts >= before) & (starts < self._judged_until)
        _raise_to(self._newest_taken, rank, starts, due & (rank >= 0))
        return new, due

    def _complete_until(
        self, starts: Floats, rank: Integers, new: Booleans, records: ColumnTable
    ) -> float:
        """Return the time up to which the records of all ranks are complete.

        Records of a rank come in order, so this is the newest record of the slowest rank, except
        for ranks that are no longer awaited. A rank whose clock is far ahead delays none.
        """
        known = new & np.isfinite(starts) & (rank >= 0)
        if not known.any():
            return self._judged_until
        most = int(rank[known].max()) + 1
        self._newest, self._newest_taken = (
            _grown(self._newest, most),
            _grown(self._newest_taken, most),
        )
        _raise_to(self._newest, rank, starts, known)
        self._pace = float(np.median(self._newest[np.unique(rank[known])]))
        self._awaited_since = self._pace - _maximum_lag(records.numbers[DURATIONS[0]][known])
        awaited = self._newest[self._newest >= self._awaited_since]
        return max(self._judged_until, float(awaited.min()))

    def _count_late(self, starts: Floats, rank: Integers) -> None:
        """Count records that arrived after their time had been judged."""
        late = np.flatnonzero(
            (rank >= 0) & (rank < len(self._newest_taken)) & (starts < self._judged_until)
        )
        late = late[starts[late] > self._newest_taken[rank[late]]]
        if len(late):
            np.maximum.at(self._newest_taken, rank[late], starts[late])
            # From now on it is awaited: a rank that is always this late is included then.
            np.maximum.at(self._newest, rank[late], starts[late])
            what = f"it is of rank {rank[late[0]]}, whose records were no longer awaited"
            self._feed.add_dropped(Dropped("late", len(late), int(late[0]) + 1, what))


def _raise_to(known: Floats, rank: Integers, starts: Floats, which: Booleans) -> None:
    np.maximum.at(known, rank[which], starts[which])


def _maximum_lag(lasted: npt.NDArray[Any]) -> float:
    """Return how many seconds a rank may lag behind others when steps last this long."""
    known = lasted[np.isfinite(lasted)]
    return max(
        MAXIMUM_LAG_SECONDS, MAXIMUM_LAG_STEPS * float(np.median(known)) if len(known) else 0.0
    )


def _grown(known: Floats, count: int) -> Floats:
    if count <= len(known):
        return known
    return np.concatenate([known, np.full(count - len(known), -np.inf)])


def columns_of(records: pd.DataFrame) -> ColumnTable:
    """Return the columns that are read from records."""
    return ColumnTable.of_frame(records, USED)


def _starts(records: ColumnTable) -> Floats:
    if CLOCK not in records.numbers:
        return np.empty(0)
    return np.asarray(records.numbers[CLOCK].astype(np.float64, copy=False))


def _ranks(records: ColumnTable) -> Integers:
    """Return the ranks of records, -1 for invalid ones."""
    ranks = records.numbers["rank"].astype(np.float64)
    known = (ranks >= 0) & (ranks <= MAXIMUM_RANK) & (ranks == np.floor(ranks))
    return np.where(known, ranks, -1).astype(np.int64)


def judge_once(records: pd.DataFrame, job: Layout, start: pd.DataFrame | None) -> Detection:
    """Return the incidents of a job by its records and those of its start.

    Raises:
        RecordError: a column is missing, or no record is usable.
    """
    return FollowedJob(job, start).update(columns_of(records))


def _ended_after(detection: Detection, began: float) -> Detection:
    """Return a detection without the incidents that ended before a time."""
    kept = (one for one in detection.incidents if one.until is None or one.until >= began)
    return replace(detection, incidents=tuple(kept))
