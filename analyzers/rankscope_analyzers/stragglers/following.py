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
from rankscope_analyzers.stragglers.feed import Feed, Judged
from rankscope_analyzers.stragglers.rows import REQUIRED

PATIENCE_SECONDS = 120.0
"""A rank that is so far behind the newest one is not waited for: its agent does not answer, or it
is gone. Four looks at the watch's default interval."""

PATIENCE_STEPS = 3.0
"""Nor one that is so many steps behind, where these take longer."""

NEW_JOB_SECONDS = 1800.0
"""A job that is back after so long a silence is taken for another one of the same name: its batch
or its model may have changed, and its former pace says nothing."""

ABSENT_LOOKS = 60
"""Looks that do not show a job after which it is forgotten: half an hour of the watch's default
interval."""

MOST_JOBS = 4096
"""Jobs that are known at a time; the ones that were not seen for longest are forgotten first."""


class Followed:
    """What is known of many jobs; bounded."""

    __slots__ = ("_jobs", "_look")

    def __init__(self) -> None:
        self._jobs: dict[str, Following] = {}
        self._look = 0

    def __len__(self) -> int:
        """Return of how many jobs something is known."""
        return len(self._jobs)

    def look(self) -> None:
        """Begin a look: forget jobs that have not been seen for long."""
        self._look += 1
        for name, known in list(self._jobs.items()):
            if self._look - known.seen > ABSENT_LOOKS:
                del self._jobs[name]

    def judged(
        self, name: str, records: pd.DataFrame, job: Layout, start: pd.DataFrame | None = None
    ) -> Judged:
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
        if known is None or known.is_another(records):
            known = Following(job, start)
        found = known.judged(records)
        known.seen = self._look
        self._jobs[name] = (
            known  # behind all others; not at all if its records made something raise
        )
        while len(self._jobs) > MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]
        return found


class Following:
    """What is known of one job.

    Args:
        job: its layout.
        start: its first records, from before the first look.
    """

    __slots__ = ("_feed", "_newest", "_pace", "_taken", "_upto", "seen")

    def __init__(self, job: Layout, start: pd.DataFrame | None = None) -> None:
        self._feed = Feed(job)
        if start is not None:
            with suppress(RecordError):  # one can do without
                self._feed.take(FrameTable(start))
        self._upto = self._pace = -np.inf
        self._newest: Floats = np.full(job.world, -np.inf)
        self._taken: Floats = np.full(job.world, -np.inf)
        self.seen = 0

    def is_another(self, records: pd.DataFrame) -> bool:
        """Say whether these are of another job of the same name, or dated quite otherwise."""
        starts = _starts(records)
        new = starts[starts >= self._upto]
        if len(new):
            return self._pace + NEW_JOB_SECONDS < float(new.min())
        return len(starts) > 0 and bool(np.nanmax(starts) < self._upto - NEW_JOB_SECONDS)

    def judged(self, records: pd.DataFrame) -> Judged:
        """Return what is known as of the newest of these records.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        step_records.require(records.columns, REQUIRED)
        starts, rank = _starts(records), _ranks(records)
        self._note_late(starts, rank)
        new = ~(starts < self._upto)
        before, self._upto = self._upto, self._all_there(starts, rank, new, records)
        due = (starts >= before) & (starts < self._upto)
        if due.any():
            _raise_to(self._taken, rank, starts, due & (rank >= 0))
            self._feed.take(FrameTable(records[due]))
        found = self._feed.now(FrameTable(records[new & ~due]))
        return _since(found, float(np.nanmin(starts)) if len(starts) else -np.inf)

    def _all_there(
        self, starts: Floats, rank: Integers, new: Booleans, records: pd.DataFrame
    ) -> float:
        """Return the moment before which no record is awaited of any rank.

        Records of a rank come in order, so that this is the newest one of the rank that is least
        far, of those that are not given up. A rank whose clock is far ahead keeps nobody waiting.
        """
        known = new & np.isfinite(starts) & (rank >= 0)
        if not known.any():
            return self._upto
        most = int(rank[known].max()) + 1
        self._newest, self._taken = _grown(self._newest, most), _grown(self._taken, most)
        _raise_to(self._newest, rank, starts, known)
        self._pace = float(np.median(self._newest[np.unique(rank[known])]))
        awaited = self._newest[self._newest >= self._pace - _patience(records[known])]
        return max(self._upto, float(awaited.min()))

    def _note_late(self, starts: Floats, rank: Integers) -> None:
        """Count records that came after their time was judged."""
        late = np.flatnonzero((rank >= 0) & (rank < len(self._taken)) & (starts < self._upto))
        late = late[starts[late] > self._taken[rank[late]]]
        if len(late):
            np.maximum.at(self._taken, rank[late], starts[late])
            what = f"it is of rank {rank[late[0]]}, whose records were no longer awaited"
            self._feed.miss(Dropped("late", len(late), int(late[0]) + 1, what))


def _raise_to(known: Floats, rank: Integers, starts: Floats, which: Booleans) -> None:
    np.maximum.at(known, rank[which], starts[which])


def _patience(records: pd.DataFrame) -> float:
    """Return how many seconds a rank may be behind the others and still be waited for."""
    lasted = step_records.numeric(records[DURATIONS[0]])
    known = lasted[np.isfinite(lasted)]
    return max(PATIENCE_SECONDS, PATIENCE_STEPS * float(np.median(known)) if len(known) else 0.0)


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


def judged_once(records: pd.DataFrame, job: Layout, start: pd.DataFrame | None) -> Judged:
    """Return what is known of a job by its records and those of its start.

    Raises:
        RecordError: a column is missing, or no record is usable.
    """
    return Following(job, start).judged(records)


def _since(found: Judged, began: float) -> Judged:
    """Return what is found without incidents that were over before a moment."""
    kept = (one for one in found.incidents if one.until is None or one.until >= began)
    return replace(found, incidents=tuple(kept))
