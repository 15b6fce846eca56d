"""Assemble records, in order of their start, into blocks of steps, run by run.

Records go in, a bounded number of them is buffered, shapes and blocks of steps come out. The result
depends on the records alone, not on how many of them are added at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rankscope_agent.contract.model import FLAG_EVALUATION, FLAG_FIRST
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers, distinct
from rankscope_analyzers.steps.layout import Layout, ReportedGroups, world_of
from rankscope_analyzers.steps.records import Account, Dropped, duplicates, repeated
from rankscope_analyzers.stragglers.arrangement import dense, shape_of_run, steps_of
from rankscope_analyzers.stragglers.quantities import Steps
from rankscope_analyzers.stragglers.rank_grid import grid, is_contradicting
from rankscope_analyzers.stragglers.rows import Rows, join
from rankscope_analyzers.stragglers.shape import Shape

LAYOUT_STEPS = 10
"""First steps of a run that show how many ranks it has; nothing is judged before."""

GROWING_STEPS = 2 * LAYOUT_STEPS
"""Steps of which half must contain ranks without a position before they get one: stray records do
not."""

HOLD_STEPS = 16
"""A record this far behind the newest step of its run is too late to be compared. Ranks of one
step are at most one apart; clocks that differ by 50 ms make that ten steps of 10 ms."""

BLOCK_ROWS = 1 << 16
"""Records that are processed at once: large enough for numpy, small enough for the cache."""

RESTART_GAP_SECONDS = 5.0
"""No job idles that long between two steps unless it restarts."""

RESTART_GAP_STEPS = 3.0
"""Nor this many times the duration of a step, the shorter one of those before and after."""

CLOCK_TOLERANCE_SECONDS = 0.2
"""Nodes' clocks differ by up to 50 ms plus drift."""

MAXIMUM_RESTARTS = 100
"""More short runs than this are not restarts but a counter that is not one."""

SETTLED_STEPS = 1000
"""Steps, of all ranks, that offset one restart: a job may restart once a day."""

MAXIMUM_BUFFERED = 8
"""Blocks of records that may wait for a step: a counter that stands still never completes one."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive executed steps of a run.

    Args:
        counters: (n,) step counter of each, ascending.
        ends: (n,) record clock of the newest record of each.
        steps: their durations.
        marked: (n,) true for steps that the probe marked as evaluation or start-up.
    """

    counters: Integers
    ends: Floats
    steps: Steps
    marked: Booleans | None = None


class Assembler:
    """Assembles the records of one job into steps.

    Args:
        job: layout at the start of the job.
        account: counts records that cannot be used.
        block_rows: approximate number of records of a block; the steps do not depend on it.
    """

    __slots__ = (
        "_account",
        "_attempt",
        "_block_rows",
        "_buffered",
        "_done",
        "_job",
        "_last_end",
        "_last_length",
        "_latest",
        "_newest",
        "_restarts",
        "_runs",
        "_seen",
        "_shape",
    )

    def __init__(self, job: Layout, account: Account, block_rows: int = BLOCK_ROWS) -> None:
        self._job = job
        self._account = account
        self._block_rows = block_rows
        self._runs, self._restarts, self._seen = 0, 0, 0
        self._begin()

    def _begin(self) -> None:
        self._buffered: list[Rows] = []
        self._shape: Shape | None = None
        self._newest, self._done = -1, -1
        self._latest, self._last_end, self._last_length = -np.inf, -np.inf, 0.0
        self._attempt: int | None = None
        self._runs += 1

    def add(self, rows: Rows) -> Iterator[Shape | Block]:
        """Add records that started after all earlier ones; yield what is complete.

        Each shape comes before the blocks of its run.

        Raises:
            RecordError: the records contradict the layout.
        """
        while len(rows):
            newest = _running_maximum(rows.step, self._newest)
            cut = self._restart(rows, newest)
            self._buffer(rows.at(slice(0, cut)), newest[:cut])
            rows = rows.at(slice(cut, None))
            if len(rows):
                self._restarts += 1
                yield from self.finish()
            elif self._is_due():
                yield from self._complete(self._newest - HOLD_STEPS - 1)
            elif sum(map(len, self._buffered)) > self._buffer_limit():
                yield from self._reduce_buffer()

    def _is_due(self) -> bool:
        """Return True if there is a block of complete steps."""
        last = self._newest - HOLD_STEPS - 1
        if last - self._done < self._steps_of_a_block():
            return False
        if self._shape is not None:
            return True
        known = np.unique(np.concatenate([rows.step for rows in self._buffered]))
        return int((known <= last).sum()) >= LAYOUT_STEPS

    def _buffer_limit(self) -> int:
        return max(MAXIMUM_BUFFERED * self._block_rows, 2 * HOLD_STEPS * self._job.world)

    def _reduce_buffer(self) -> Iterator[Shape | Block]:
        """Drop duplicates from the buffer; if that is not enough, release all steps."""
        rows = join(self._buffered)
        _, position = np.unique(np.stack([rows.step, rows.rank]), axis=1, return_inverse=True)
        again = repeated(position.ravel().astype(np.int64), len(rows))
        if len(again):
            self._account.add(duplicates(again, rows.row))
            once = np.ones(len(rows), dtype=np.bool_)
            once[again] = False
            rows = rows.at(once)
        self._buffered = [rows]
        if len(rows) > self._buffer_limit() // 2:
            yield from self._complete(self._newest)

    def finish(self) -> Iterator[Shape | Block]:
        """End the run and yield the rest of it."""
        yield from self._complete(self._newest, ending=True)
        self._begin()

    def _steps_of_a_block(self) -> int:
        if self._shape is None:
            return LAYOUT_STEPS + max(1, self._block_rows // self._job.world)
        return max(1, self._block_rows // self._shape.world)

    def _restart(self, rows: Rows, newest: Integers) -> int:
        """Return how many records belong to the run: until the counter falls or after a long gap.

        Every cut depends on earlier records only.

        Args:
            rows: in order of their start.
            newest: largest counter of the run before each of them.
        """
        length, end = rows.duration, rows.end
        short = np.minimum(length, np.append(self._last_length, length[:-1]))
        # Short steps are over before clocks that differ as much could show a restart.
        overlap = -np.minimum(CLOCK_TOLERANCE_SECONDS, short / 4)
        gap = np.maximum(RESTART_GAP_SECONDS, RESTART_GAP_STEPS * short)
        fell = (rows.step < newest) | self._is_later_attempt(rows)
        # The latest end is not before that of the record before: most are no restart after this.
        pause = rows.start - np.append(self._last_end, end[:-1])
        likely = np.flatnonzero((fell & (pause > overlap)) | (pause > gap))
        pause = rows.start[likely] - _latest_before(end, likely, self._latest)
        cuts = likely[(fell[likely] & (pause > overlap[likely])) | (pause > gap[likely])]
        cuts = cuts[self._may_restart(cuts)]
        if self._newest < 0:
            cuts = cuts[cuts > 0]
        return int(cuts[0]) if len(cuts) else len(rows)

    def _may_restart(self, cuts: Integers) -> Booleans:
        """Return True for records at which the job may have restarted: restarts are limited."""
        earned = (self._seen + cuts) // (SETTLED_STEPS * self._job.world)
        return np.asarray(self._restarts - earned < MAXIMUM_RESTARTS)

    def _is_later_attempt(self, rows: Rows) -> Booleans:
        """Return True for records of a later attempt of the launcher than all before them."""
        if "attempt" not in rows.whole:
            return np.zeros(len(rows), dtype=np.bool_)
        attempt = rows.whole["attempt"]
        known = self._attempt if self._attempt is not None else int(attempt[0])
        before = np.maximum.accumulate(np.append(known, attempt[:-1]))
        return np.asarray(attempt > before)

    def _buffer(self, rows: Rows, newest: Integers) -> None:
        """Keep records until their steps are complete, except those that come too late.

        Args:
            rows: of this run.
            newest: largest counter before each of them.
        """
        if not len(rows):
            return
        self._seen += len(rows)
        self._newest = max(int(newest[-1]), int(rows.step[-1]))
        self._latest = max(self._latest, float(rows.end.max()))
        self._last_end, self._last_length = float(rows.end[-1]), float(rows.duration[-1])
        if "attempt" in rows.whole:
            attempt = int(rows.whole["attempt"].max())
            self._attempt = attempt if self._attempt is None else max(attempt, self._attempt)
        late = rows.step < newest - HOLD_STEPS
        if late.any():
            self._account.add(_late(rows.at(late), newest[late]))
            rows = rows.at(~late)
        if len(rows):
            self._buffered.append(rows)

    def _complete(self, last: int, *, ending: bool = False) -> Iterator[Shape | Block]:
        """Yield the steps up to counter `last`.

        Args:
            last: steps up to this one are complete.
            ending: all later ones are, too.
        """
        if not self._buffered:
            return
        ready, self._buffered = _split(self._buffered, last)
        self._done = last
        if ready:
            yield from self._blocks(join(ready), ending)

    def _blocks(self, rows: Rows, ending: bool) -> Iterator[Shape | Block]:
        counters, index = distinct(rows.step)
        first, last = 0, len(counters)
        while first < last:
            shape, known = self._shape, first
            if shape is None:
                shape = self._shape = self._shape_of(rows.at(_within(index, first, LAYOUT_STEPS)))
                known = first + 1
                yield shape
            grown, sure = self._find_growth(shape.positions_of(rows.rank), index, known, last)
            if not sure and ending:
                grown, sure = last, True
            yield from self._cut(rows, index, counters, shape, (first, grown))
            if not sure:
                self._buffered.insert(0, rows.at(index >= grown))
                self._done = int(counters[grown]) - 1
                return
            self._shape = None if grown < last else shape
            first = grown

    def _cut(
        self, rows: Rows, index: Integers, counters: Integers, shape: Shape, span: tuple[int, int]
    ) -> Iterator[Block]:
        """Yield the blocks of some steps of one shape."""
        size = max(1, self._block_rows // shape.world)
        for begin in range(*span, size):
            count = min(size, span[1] - begin)
            inside = _within(index, begin, count)
            chosen = rows if inside.all() else rows.at(inside)
            steps = (index if inside.all() else index[inside]) - begin
            yield self._block(chosen, steps, counters[begin : begin + count], shape)

    def _find_growth(
        self, position: Integers, index: Integers, first: int, last: int
    ) -> tuple[int, bool]:
        """Return the step from which on ranks without a position report often enough to get one.

        That needs `GROWING_STEPS` steps: where there are fewer so far, it is the first step for
        which the answer is uncertain.

        Args:
            position: of each record, -1 if its rank has none.
            index: of each record's step.
            first: step to begin with.
            last: number of steps.
        """
        if not self._job.by_groups:
            return last, True
        unplaced = np.unique(index[(position < 0) & (index >= first)])
        among = np.searchsorted(unplaced, unplaced + GROWING_STEPS) - np.arange(len(unplaced))
        to_come = np.maximum(unplaced + GROWING_STEPS - last, 0)
        likely = np.flatnonzero(among + to_come >= LAYOUT_STEPS)
        if not len(likely):
            return last, True
        return int(unplaced[likely[0]]), bool(among[likely[0]] >= LAYOUT_STEPS)

    def _shape_of(self, first: Rows) -> Shape:
        """Return the shape that the records of some steps show."""
        job, reported = self._job, ReportedGroups(first.rank, first.row, first.groups)
        if job.by_groups:
            ranks = grid(reported)
            sizes = ranks.shape[0], ranks.shape[1], ranks.shape[2]
            shape = shape_of_run(first, sizes, ranks, job)
            contradicting = is_contradicting(reported)
            return replace(shape, contradicting=contradicting, job_ranks=job.world)
        world = world_of(reported, job, self._runs == 1)
        return shape_of_run(first, (job.pipeline, world // job.unit, job.tensor), None, job)

    def _block(self, rows: Rows, index: Integers, counters: Integers, shape: Shape) -> Block:
        """Return steps as dense arrays; the first record of a rank in a step counts."""
        position = shape.positions_of(rows.rank)
        if int(position.min()) < 0:
            inside = position >= 0
            self._account.add(_unplaced(rows.at(~inside), shape.rank_count))
            rows, index, position = rows.at(inside), index[inside], position[inside]
        cell, size = index * shape.world + position, len(counters) * shape.world
        again = repeated(cell, size)
        if len(again):
            self._account.add(duplicates(again, rows.row))
            once = np.ones(len(cell), dtype=np.bool_)
            once[again] = False
            rows, cell = rows.at(once), cell[once]
        ends = dense(cell, rows.end, size).reshape(len(counters), -1)
        newest = np.nan_to_num(np.fmax.reduce(ends, axis=1))
        steps = steps_of(rows, cell, len(counters), shape)
        return Block(counters, newest, steps, _marked(rows, cell // shape.world, len(counters)))


def _within(index: Integers, first: int, count: int) -> Booleans:
    return np.asarray((index >= first) & (index < first + count))


def _marked(rows: Rows, index: Integers, count: int) -> Booleans | None:
    if "flags" not in rows.whole:
        return None
    flags = np.maximum(rows.whole["flags"], 0)
    found = np.zeros(count, dtype=np.bool_)
    found[index[(flags & (FLAG_EVALUATION | FLAG_FIRST)) != 0]] = True
    return found


def _split(buffered: list[Rows], last: int) -> tuple[list[Rows], list[Rows]]:
    """Return records up to step `last` and later ones; parts that need no split are not copied."""
    ready, later = [], []
    for part in buffered:
        over = part.step <= last
        count = int(np.count_nonzero(over))
        if count == len(part):
            ready.append(part)
        elif not count:
            later.append(part)
        else:
            ready.append(part.at(over))
            later.append(part.at(~over))
    return ready, later


def _running_maximum(step: Integers, before: int) -> Integers:
    """Return the largest counter before each record, `before` included."""
    return np.maximum.accumulate(np.append(before, step[:-1]))


def _latest_before(end: Floats, index: Integers, before: float) -> Floats:
    """Return the latest end before each of some ascending indices, `before` included."""
    inner = index[index > 0]
    if not len(inner):
        return np.full(len(index), before)
    parts = np.maximum.reduceat(end[: inner[-1]], np.append(0, inner[:-1]))
    latest = np.maximum.accumulate(np.append(before, parts))
    return np.asarray(latest[1:] if index[0] else latest)


def _late(rows: Rows, newest: Integers) -> Dropped:
    first = int(np.argmin(rows.row))
    what = f"it is of step {rows.step[first]}, its run had reached {newest[first]}"
    return Dropped("late", len(rows), int(rows.row[first]), what)


def _unplaced(rows: Rows, world: int) -> Dropped:
    first = int(np.argmin(rows.row))
    what = f"rank is {rows.rank[first]}, this run has {world} ranks"
    return Dropped("foreign", len(rows), int(rows.row[first]), what)
