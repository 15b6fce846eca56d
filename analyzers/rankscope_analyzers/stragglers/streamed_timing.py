"""Judges running jobs by their new records, and finds out which of them have something to report.

Reports take their figures from the newest records, and their incidents from the state that results
from all records; a job's state sees each record once, at the look that brought it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import CLOCK
from rankscope_analyzers.steps.tables import ColumnTable
from rankscope_analyzers.stragglers.feed import Detection
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs, columns_of
from rankscope_analyzers.stragglers.judging_shares import JudgingShares

Signature = tuple[tuple[str, tuple[int, ...], float, bool], ...]
"""Class, ranks and beginning of each incident, and whether it is still open."""


class StreamedTiming:
    """The state by which `diagnose_each` follows jobs whose records arrive a few at a time.

    Args:
        followed: the state of jobs.
    """

    def __init__(self, followed: FollowedJobs) -> None:
        self.followed = followed
        self.first_steps = followed.first_steps
        self.shares = JudgingShares()
        self._offered: dict[str, tuple[pd.DataFrame, int]] = {}
        self._moved: dict[str, Mapping[str, float]] = {}
        self._reported: dict[str, Signature] = {}

    def start_poll(self) -> None:
        """Do nothing: looks at all jobs are counted elsewhere, by those who make them."""

    def update(
        self, name: str, records: pd.DataFrame, job: Layout, start: pd.DataFrame | None = None
    ) -> Detection:
        """Add the newest records of a job, as many as are fresh; return its incidents.

        Args:
            name: of the job.
            records: all that are kept, the fresh ones last.
            job: its layout.
            start: its first records, if known.

        Raises:
            RecordError: a column is missing, or no record was usable so far.
        """
        original, count = self._offered.pop(name, (records, 0))
        self._note_clocks(name, original, records)
        fresh = columns_of(records.iloc[len(records) - count :])
        detection = self._follow(name, fresh, job, start)
        self._reported[name] = signature(detection)
        return _since(detection, records)

    def has_news(self, name: str, fresh: ColumnTable, job: Layout) -> bool:
        """Add fresh records of a job that is followed; return True if its incidents changed.

        Raises:
            RecordError: a column is missing.
        """
        moved = self._moved.get(name)
        if moved:
            by = np.array([moved.get(node, 0.0) for node in fresh.node_names])
            clock = fresh.numbers[CLOCK] - by[fresh.node]
            fresh = replace(fresh, numbers={**fresh.numbers, CLOCK: clock})
        return signature(self._follow(name, fresh, job)) != self._reported.get(name)

    def _follow(
        self, name: str, fresh: ColumnTable, job: Layout, start: pd.DataFrame | None = None
    ) -> Detection:
        began, began_cpu = time.monotonic(), time.thread_time()
        try:
            return self.followed.follow(name, fresh, job, start)
        finally:
            cpu_seconds = time.thread_time() - began_cpu
            self.shares.note(name, len(fresh), cpu_seconds, time.monotonic() - began)

    def offer(self, name: str, records: pd.DataFrame, fresh: int) -> None:
        """Register which of a job's records `update` has not seen yet, before it is called.

        Args:
            name: of the job.
            records: all that are kept, as they came, the fresh ones last.
            fresh: how many these are.
        """
        self._offered[name] = (records, fresh)

    def _note_clocks(self, name: str, original: pd.DataFrame, used: pd.DataFrame) -> None:
        """Record by how much the clocks of a job's nodes were found to be ahead.

        Args:
            name: of the job.
            original: its records as they came.
            used: the same records as they were judged.
        """
        if (
            original is used
            or len(original) != len(used)
            or CLOCK not in original
            or "node" not in original
        ):
            return
        by = step_records.numeric(original[CLOCK]) - step_records.numeric(used[CLOCK])
        far = np.flatnonzero(np.nan_to_num(by))
        nodes = original["node"].to_numpy()
        self._moved[name] = {str(nodes[one]): float(by[one]) for one in far.tolist()}

    def keep(self, names: Mapping[str, object]) -> None:
        """Forget all jobs but these."""
        self.shares.keep(names)
        for known in (self._offered, self._moved, self._reported):
            for name in [one for one in known if one not in names]:
                del known[name]


def signature(detection: Detection) -> Signature:
    """Return the values whose change makes a report out of date."""
    return tuple((one.kind, one.ranks, one.since, one.until is None) for one in detection.incidents)


def _since(detection: Detection, records: pd.DataFrame) -> Detection:
    """Return a detection without the incidents that ended before the records that are kept."""
    starts = step_records.numeric(records[CLOCK]) if len(records) else np.empty(0)
    began = float(np.nanmin(starts)) if len(starts) else -np.inf
    kept = (one for one in detection.incidents if one.until is None or one.until >= began)
    return replace(detection, incidents=tuple(kept))
