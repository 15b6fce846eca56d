"""Judging running jobs look after look: each takes what is new and remembers the rest.

A look shows the records of the last half an hour. Of these only what no look has taken goes into
the state of the job, as soon as no earlier record of any rank can be missing; the newest ones are
judged by a copy of it. What a job is compared with is therefore its own beginning, however long
ago, and an incident is the same one from look to look.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
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
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers.feed import Detection, Feed
from rankscope_analyzers.stragglers.rows import REQUIRED

MAXIMUM_LAG_SECONDS = 120.0
"""A rank that is so far behind the newest one is not waited for: its agent does not answer, or it
is gone. Four looks at the watch's default interval."""

MAXIMUM_LAG_STEPS = 3.0
"""Nor one that is so many steps behind, where these take longer."""

NEW_JOB_SECONDS = 1800.0
"""A job that is back after so long a silence is taken for another one of the same name: its batch
or its model may have changed, and its former pace says nothing."""

ABSENT_POLLS = 60
"""Looks that do not show a job after which it is forgotten: half an hour of the watch's default
interval."""

MAXIMUM_JOBS = 4096
"""Jobs that are known at a time; the ones that were not seen for longest are forgotten first."""


class FollowedJobs:
    """What is known of many jobs; bounded."""

    __slots__ = ("_jobs", "_poll")

    def __init__(self) -> None:
        self._jobs: dict[str, FollowedJob] = {}
        self._poll = 0

    def __len__(self) -> int:
        """Return of how many jobs something is known."""
        return len(self._jobs)

    def start_poll(self) -> None:
        """Begin a look: forget jobs that have not been seen for long."""
        self._poll += 1
        for name, known in list(self._jobs.items()):
            if self._poll - known.last_poll > ABSENT_POLLS:
                del self._jobs[name]

    def update(
        self, name: str, records: pd.DataFrame, job: Layout, start: pd.DataFrame | None = None
    ) -> Detection:
        """Return what is known of a job as of its newest record.

        Args:
            name: of the job.
            records: all that the look shows of it, in any order, taken by earlier looks or not.
            job: its layout.
            start: its first records, where the look shows them.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        known = self._jobs.pop(name, None)
        if known is None or known.is_other_job(records):
            known = FollowedJob(job, start)
        detection = known.update(records)
        known.last_poll = self._poll
        self._jobs[name] = (
            known  # behind all others; not at all if its records made something raise
        )
        while len(self._jobs) > MAXIMUM_JOBS:
            del self._jobs[next(iter(self._jobs))]
        return detection


class FollowedJob:
    """What is known of one job.

    Args:
        job: its layout.
        start: its first records, from before the first look.
    """

    __slots__ = ("_feed", "_judged_until", "_newest", "_newest_taken", "_pace", "last_poll")

    def __init__(self, job: Layout, start: pd.DataFrame | None = None) -> None:
        self._feed = Feed(job)
        if start is not None:
            with suppress(RecordError):  # one can do without
                self._feed.add(FrameTable(start))
        self._judged_until = self._pace = -np.inf
        self._newest: Floats = np.full(job.world, -np.inf)
        self._newest_taken: Floats = np.full(job.world, -np.inf)
        self.last_poll = 0

    def is_other_job(self, records: pd.DataFrame) -> bool:
        """Say whether these are of another job of the same name, or dated quite otherwise."""
        starts = _starts(records)
        new = starts[starts >= self._judged_until]
        if len(new):
            return self._pace + NEW_JOB_SECONDS < float(new.min())
        return len(starts) > 0 and bool(np.nanmax(starts) < self._judged_until - NEW_JOB_SECONDS)

    def update(self, records: pd.DataFrame) -> Detection:
        """Return what is known as of the newest of these records.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        step_records.require(records.columns, REQUIRED)
        starts, rank = _starts(records), _ranks(records)
        self._count_late(starts, rank)
        new = ~(starts < self._judged_until)
        before, self._judged_until = (
            self._judged_until,
            self._complete_until(starts, rank, new, records),
        )
        due = (starts >= before) & (starts < self._judged_until)
        if due.any():
            _raise_to(self._newest_taken, rank, starts, due & (rank >= 0))
            self._feed.add(FrameTable(records[due]))
        detection = self._feed.peek(FrameTable(records[new & ~due]))
        return _ended_after(detection, float(np.nanmin(starts)) if len(starts) else -np.inf)

    def _complete_until(
        self, starts: Floats, rank: Integers, new: Booleans, records: pd.DataFrame
    ) -> float:
        """Return the moment before which no record is awaited of any rank.

        Records of a rank come in order, so that this is the newest one of the rank that is least
        far, of those that are not given up. A rank whose clock is far ahead keeps nobody waiting.
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
        awaited = self._newest[self._newest >= self._pace - _maximum_lag(records[known])]
        return max(self._judged_until, float(awaited.min()))

    def _count_late(self, starts: Floats, rank: Integers) -> None:
        """Count records that came after their time was judged."""
        late = np.flatnonzero(
            (rank >= 0) & (rank < len(self._newest_taken)) & (starts < self._judged_until)
        )
        late = late[starts[late] > self._newest_taken[rank[late]]]
        if len(late):
            np.maximum.at(self._newest_taken, rank[late], starts[late])
            what = f"it is of rank {rank[late[0]]}, whose records were no longer awaited"
            self._feed.add_dropped(Dropped("late", len(late), int(late[0]) + 1, what))


def _raise_to(known: Floats, rank: Integers, starts: Floats, which: Booleans) -> None:
    np.maximum.at(known, rank[which], starts[which])


def _maximum_lag(records: pd.DataFrame) -> float:
    """Return how many seconds a rank may be behind the others and still be waited for."""
    lasted = step_records.numeric(records[DURATIONS[0]])
    known = lasted[np.isfinite(lasted)]
    return max(
        MAXIMUM_LAG_SECONDS, MAXIMUM_LAG_STEPS * float(np.median(known)) if len(known) else 0.0
    )


def _grown(known: Floats, count: int) -> Floats:
    if count <= len(known):
        return known
    return np.concatenate([known, np.full(count - len(known), -np.inf)])


def _starts(records: pd.DataFrame) -> Floats:
    if CLOCK not in records.columns:
        return np.empty(0)
    return step_records.numeric(records[CLOCK]).astype(np.float64, copy=False)


def _ranks(records: pd.DataFrame) -> Integers:
    """Return the ranks of records, -1 for those that no rank has."""
    ranks = step_records.numeric(records["rank"]).astype(np.float64)
    known = (ranks >= 0) & (ranks <= MAXIMUM_RANK) & (ranks == np.floor(ranks))
    return np.where(known, ranks, -1).astype(np.int64)


def judge_once(records: pd.DataFrame, job: Layout, start: pd.DataFrame | None) -> Detection:
    """Return what is known of a job by its records and those of its start.

    Raises:
        RecordError: a column is missing, or no record is usable.
    """
    return FollowedJob(job, start).update(records)


def _ended_after(detection: Detection, began: float) -> Detection:
    """Return what is found without incidents that were over before a moment."""
    kept = (one for one in detection.incidents if one.until is None or one.until >= began)
    return replace(detection, incidents=tuple(kept))
