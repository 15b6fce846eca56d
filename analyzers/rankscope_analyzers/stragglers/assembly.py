"""Assemble records, in order of their start, into blocks of steps, run by run.

Records go in, a bounded number of them is buffered, shapes and blocks of steps come out. The result
depends on the records alone, not on how many of them are added at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers, distinct
from rankscope_analyzers.steps.layout import Layout, ReportedGroups, world_of
from rankscope_analyzers.steps.records import Account, Dropped
from rankscope_analyzers.steps.rows import Rows, dense, first_of_each, join, marked_steps
from rankscope_analyzers.steps.runs import Runs
from rankscope_analyzers.stragglers.arrangement import shape_of_run, steps_of
from rankscope_analyzers.stragglers.quantities import Steps
from rankscope_analyzers.stragglers.rank_grid import grid, is_contradicting
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

MAXIMUM_BUFFERED = 8
"""Blocks of records that may wait for a step: a counter that does not advance never completes
one."""


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
        "_block_rows",
        "_buffered",
        "_done",
        "_job",
        "_newest",
        "_number",
        "_reached",
        "_released",
        "_runs",
        "_shape",
    )

    def __init__(self, job: Layout, account: Account, block_rows: int = BLOCK_ROWS) -> None:
        self._job = job
        self._account = account
        self._block_rows = block_rows
        self._runs, self._number = Runs(job.world), 0
        self._begin()

    def _begin(self) -> None:
        self._buffered: list[Rows] = []
        self._shape: Shape | None = None
        self._newest, self._done, self._released = -1, -1, -1
        self._reached: Integers = np.empty(0, dtype=np.int64)
        self._number += 1

    def add(self, rows: Rows) -> Iterator[Shape | Block]:
        """Add records that started after all earlier ones; yield what is complete.

        Each shape comes before the blocks of its run.

        Raises:
            RecordError: the records contradict the layout.
        """
        for part in self._runs.split(rows):
            if part.begins:
                yield from self.finish()
            self._buffer(part.rows, part.newest)
        if not self._buffered:
            return
        if self._is_due():
            yield from self._complete(self._newest - HOLD_STEPS - 1)
        elif sum(map(len, self._buffered)) > self._buffer_limit():
            yield from self._reduce_buffer()

    def _is_due(self) -> bool:
        """Return True if there is a block of complete steps."""
        last = self._newest - HOLD_STEPS - 1
        if last - self._done < self._steps_of_a_block():
            return False
        return self._shape is not None or self._shows_layout(last)

    def _shows_layout(self, last: int) -> bool:
        """Return True if steps up to a counter are enough to show how many ranks there are."""
        known = np.unique(np.concatenate([rows.step for rows in self._buffered]))
        return int((known <= last).sum()) >= LAYOUT_STEPS

    @property
    def held(self) -> int:
        """Return how many records wait for others of their steps."""
        return sum(map(len, self._buffered))

    def release(self, ranks: Integers) -> Iterator[Shape | Block]:
        """Yield the steps of which no record is missing any more, earlier than later steps would.

        Args:
            ranks: those with records still to come; each has sent its earlier ones in order.
        """
        known = ranks[ranks < len(self._reached)]
        if not len(known) or len(known) < len(ranks) or not self._buffered:
            return
        last = int(self._reached[known].min())
        if last <= self._done or (self._shape is None and not self._shows_layout(last)):
            return
        self._released = last
        yield from self._complete(last)

    def _buffer_limit(self) -> int:
        return max(MAXIMUM_BUFFERED * self._block_rows, 2 * HOLD_STEPS * self._job.world)

    def _reduce_buffer(self) -> Iterator[Shape | Block]:
        """Drop duplicates from the buffer; if that is not enough, release all steps."""
        rows = join(self._buffered)
        _, position = np.unique(np.stack([rows.step, rows.rank]), axis=1, return_inverse=True)
        once = first_of_each(rows, position.ravel().astype(np.int64), len(rows), self._account)
        rows = rows if once is None else rows.at(once)
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

    def _buffer(self, rows: Rows, newest: Integers) -> None:
        """Keep records until their steps are complete, except those that come too late.

        Args:
            rows: of this run.
            newest: largest counter before each of them.
        """
        if not len(rows):
            return
        self._newest = max(int(newest[-1]), int(rows.step[-1]))
        late = (rows.step < newest - HOLD_STEPS) | (rows.step <= self._released)
        self._reach(rows)
        if late.any():
            self._account.add(_late(rows.at(late), newest[late]))
            rows = rows.at(~late)
        if len(rows):
            self._buffered.append(rows)

    def _reach(self, rows: Rows) -> None:
        """Record how far each rank of the run has come."""
        most = int(rows.rank.max()) + 1
        if most > len(self._reached):
            more = np.full(most - len(self._reached), -1, dtype=np.int64)
            self._reached = np.concatenate([self._reached, more])
        np.maximum.at(self._reached, rows.rank, rows.step)

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

        That requires `GROWING_STEPS` steps: with fewer so far, it is the first step for which the
        answer is uncertain.

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
        world = world_of(reported, job, self._number == 1)
        return shape_of_run(first, (job.pipeline, world // job.unit, job.tensor), None, job)

    def _block(self, rows: Rows, index: Integers, counters: Integers, shape: Shape) -> Block:
        """Return steps as dense arrays; the first record of a rank in a step counts."""
        position = shape.positions_of(rows.rank)
        if int(position.min()) < 0:
            inside = position >= 0
            self._account.add(_unplaced(rows.at(~inside), shape.rank_count))
            rows, index, position = rows.at(inside), index[inside], position[inside]
        cell, size = index * shape.world + position, len(counters) * shape.world
        once = first_of_each(rows, cell, size, self._account)
        if once is not None:
            rows, cell = rows.at(once), cell[once]
        ends = dense(cell, rows.end, size).reshape(len(counters), -1)
        newest = np.nan_to_num(np.fmax.reduce(ends, axis=1))
        steps = steps_of(rows, cell, len(counters), shape)
        return Block(counters, newest, steps, _marked(rows, cell // shape.world, len(counters)))


def _within(index: Integers, first: int, count: int) -> Booleans:
    return np.asarray((index >= first) & (index < first + count))


def _marked(rows: Rows, index: Integers, count: int) -> Booleans | None:
    return marked_steps(rows, index, count) if "flags" in rows.whole else None


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


def _late(rows: Rows, newest: Integers) -> Dropped:
    first = int(np.argmin(rows.row))
    what = f"it is of step {rows.step[first]}, its run had reached {newest[first]}"
    return Dropped("late", len(rows), int(rows.row[first]), what)


def _unplaced(rows: Rows, world: int) -> Dropped:
    first = int(np.argmin(rows.row))
    what = f"rank is {rows.rank[first]}, this run has {world} ranks"
    return Dropped("foreign", len(rows), int(rows.row[first]), what)
