"""Split the records of a job into its runs: at a restart or a long silence.

All that is derived from records, incidents and matrices alike, takes its runs from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps.rows import Rows

RESTART_GAP_SECONDS = 5.0
"""No job idles this long between two steps unless it restarts."""

RESTART_GAP_STEPS = 3.0
"""Nor for this many times the shorter of the steps before and after."""

CLOCK_TOLERANCE_SECONDS = 0.2
"""Nodes' clocks differ by up to 50 ms plus drift."""

MAXIMUM_RESTARTS = 100
"""More short runs than this mean that the counter does not count steps."""

SETTLED_STEPS = 1000
"""Steps of all ranks per tolerated restart: a job may restart once a day."""

MOST_AHEAD_STEPS = 64
"""A rank that is first seen further behind the others has restarted. Hosts run ahead of their
devices by 1,024 launches at most (CUDA's queue), and a step launches dozens of kernels."""

PIECE_ROWS = 16_384
"""Records looked at together: each restart has the rest of them looked at once more."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """What the step counters of records tell, one value for each.

    Args:
        again: True if their rank has done the step before, since the last restart.
        doubtful: True if their rank was first seen behind the others and still is: they may be the
            first ones after a restart, so that another rank's need not follow their ends.
    """

    again: Booleans
    doubtful: Booleans


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records of one run.

    Args:
        rows: in order of their start; may be empty.
        newest: (n,) largest step counter of the run before each of them, -1 before the first.
        begins: True if a run begins with them.
        restarts: of the job before them; silences within one attempt do not count.
    """

    rows: Rows
    newest: Integers
    begins: bool
    restarts: int


class Runs:
    """Splits the records of one job, in order of their start, into runs; bounded state.

    Where a run ends depends only on the records, not on how many of them are added at once.

    Args:
        world: approximate number of ranks of the job.
    """

    __slots__ = (
        "_attempt",
        "_cuts",
        "_doubtful",
        "_last_end",
        "_last_length",
        "_latest",
        "_latest_sure",
        "_newest",
        "_own",
        "_reached",
        "_restarts",
        "_seen",
        "_world",
    )

    def __init__(self, world: int) -> None:
        self._world = world
        self._cuts, self._restarts, self._seen = 0, 0, 0
        self._begin()

    def _begin(self, *, restarted: bool = True) -> None:
        """Begin a run. After a mere silence ranks continue to count where they were."""
        self._newest = -1
        self._latest, self._latest_sure = -np.inf, -np.inf
        self._last_end, self._last_length = -np.inf, 0.0
        if restarted:
            self._attempt: int | None = None
            self._own: dict[int, int] = {}  # the newest step of each rank
            self._reached = -1  # the newest of all
            self._doubtful: frozenset[int] = frozenset()  # ranks behind the others at first

    def split(self, rows: Rows) -> Iterator[Stretch]:
        """Yield records, which started after all earlier ones, run by run."""
        for first in range(0, len(rows), PIECE_ROWS):
            yield from self._split(rows.at(slice(first, first + PIECE_ROWS)))

    def _split(self, rows: Rows) -> Iterator[Stretch]:
        begins = False
        while len(rows):
            newest = _running_maximum(rows.step, self._newest)
            repeats = self._repeats(rows)
            again = repeats.again | self._is_later_attempt(rows)
            cut = self._cut(rows, again, repeats.doubtful)
            head = rows.at(slice(0, cut))
            self._take(head, repeats.doubtful[:cut])
            yield Stretch(head, newest[:cut], begins, self._restarts)
            if cut == len(rows):
                return
            self._cuts += 1
            self._restarts += bool(again[cut])
            self._begin(restarted=bool(again[cut]))
            rows, begins = rows.at(slice(cut, None)), True

    def _cut(self, rows: Rows, again: Booleans, doubtful: Booleans) -> int:
        """Return how many records belong to the run: until the counter falls or after a long gap.

        Every cut depends only on earlier records.

        Args:
            rows: in order of their start.
            again: True for records of steps that their rank has done before, or of a later attempt.
            doubtful: True for records that the others' need not follow.
        """
        length, end = rows.duration, rows.end
        short = np.minimum(length, np.append(self._last_length, length[:-1]))
        # Short steps end before clocks with such an offset could show a restart.
        overlap = -np.minimum(CLOCK_TOLERANCE_SECONDS, short / 4)
        gap = np.maximum(RESTART_GAP_SECONDS, RESTART_GAP_STEPS * short)
        # The latest end is not before the previous record's: most follow no silence after this.
        pause = rows.start - np.append(self._last_end, end[:-1])
        likely = np.flatnonzero(again | (pause > gap))
        start, again = rows.start[likely], again[likely]
        silent = start - _latest_before(end, likely, self._latest) > gap[likely]
        sure = np.where(doubtful, -np.inf, end)
        after_all = start - _latest_before(sure, likely, self._latest_sure) > overlap[likely]
        cuts = likely[(again & after_all) | silent]
        cuts = cuts[self._may_restart(cuts)]
        if self._newest < 0:
            cuts = cuts[cuts > 0]
        return int(cuts[0]) if len(cuts) else len(rows)

    def _may_restart(self, cuts: Integers) -> Booleans:
        """Return True for records at which the job may have restarted: restarts are limited."""
        earned = (self._seen + cuts) // (SETTLED_STEPS * self._world)
        return np.asarray(self._cuts - earned < MAXIMUM_RESTARTS)

    def _repeats(self, rows: Rows) -> Repeats:
        """Return what the counters of records tell.

        A rank's own decides. That others have done later steps shows nothing: with CUDA, hosts run
        ahead of their devices, and the ranks that wait for a slow one are steps ahead of it.
        """
        reached = _running_maximum(rows.step, self._reached)
        behind = np.asarray(rows.step < reached)
        if not behind.any():
            return Repeats(behind, behind)
        ranks, index = np.unique(rows.rank, return_inverse=True)
        own = _own_before(rows.step, index, self._newest_of(ranks))
        new = own < 0
        late = np.array([rank in self._doubtful for rank in ranks.tolist()])
        late[index[new]] = behind[new]
        far = rows.step < reached - MOST_AHEAD_STEPS
        again = behind & np.where(new, far, rows.step <= own)
        return Repeats(again, behind & late[index] & ~again)

    def _is_later_attempt(self, rows: Rows) -> Booleans:
        """Return True for records of a later attempt of the launcher than all before them."""
        if "attempt" not in rows.whole:
            return np.zeros(len(rows), dtype=np.bool_)
        attempt = rows.whole["attempt"]
        known = self._attempt if self._attempt is not None else int(attempt[0])
        before = np.maximum.accumulate(np.append(known, attempt[:-1]))
        return np.asarray(attempt > before)

    def _take(self, rows: Rows, doubtful: Booleans) -> None:
        """Add records to the current run."""
        if not len(rows):
            return
        self._seen += len(rows)
        self._know(rows)
        self._doubtful |= frozenset(rows.rank[doubtful].tolist())
        end = rows.end
        self._latest = max(self._latest, float(end.max()))
        self._latest_sure = max(self._latest_sure, float(end[~doubtful].max(initial=-np.inf)))
        self._last_end, self._last_length = float(end[-1]), float(rows.duration[-1])
        if "attempt" in rows.whole:
            attempt = int(rows.whole["attempt"].max())
            self._attempt = attempt if self._attempt is None else max(attempt, self._attempt)

    def _newest_of(self, ranks: Integers) -> Integers:
        """Return the newest step of each of these ranks since the last restart, -1 without any."""
        return np.array([self._own.get(rank, -1) for rank in ranks.tolist()])

    def _know(self, rows: Rows) -> None:
        """Keep how far each rank, and the run, has come."""
        ranks, index = np.unique(rows.rank, return_inverse=True)
        newest = self._newest_of(ranks)
        np.maximum.at(newest, index, rows.step)
        self._own.update(zip(ranks.tolist(), newest.tolist(), strict=True))
        self._newest = max(self._newest, int(rows.step.max()))
        self._reached = max(self._reached, self._newest)


def _running_maximum(step: Integers, before: int) -> Integers:
    """Return the largest counter before each record, `before` included."""
    return np.maximum.accumulate(np.append(before, step[:-1]))


def _own_before(step: Integers, rank: Integers, before: Integers) -> Integers:
    """Return the newest step of each record's rank before it, -1 if there is none.

    Args:
        step: (n,) of each record.
        rank: (n,) index of its rank.
        before: (k,) newest step of each rank before all records.
    """
    # Steps by their order, as a counter may be as large as it likes.
    steps, place = np.unique(np.append(step, before), return_inverse=True)
    place, known = place[: len(step)], place[len(step) :]
    order = np.argsort(rank, kind="stable")
    sorted_rank, sorted_place = rank[order], place[order]
    first = np.append(True, sorted_rank[1:] != sorted_rank[:-1])
    shifted = np.where(first, known[sorted_rank], np.append(0, sorted_place[:-1]))
    # One running maximum over all ranks: those of each are above all of the previous rank's.
    apart = sorted_rank.astype(np.int64) * len(steps)
    result = np.empty(len(step), dtype=np.int64)
    result[order] = steps[np.maximum.accumulate(shifted + apart) - apart]
    return result


def _latest_before(end: Floats, index: Integers, before: float) -> Floats:
    """Return the latest end before each of some ascending indices, `before` included."""
    inner = index[index > 0]
    if not len(inner):
        return np.full(len(index), before)
    parts = np.maximum.reduceat(end[: inner[-1]], np.append(0, inner[:-1]))
    latest = np.maximum.accumulate(np.append(before, parts))
    return np.asarray(latest[1:] if index[0] else latest)
