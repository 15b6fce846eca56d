"""From the records of a job, however they are stored, to its incidents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rankscope_analyzers.numeric.arrays import Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account, Dropped, Rules
from rankscope_analyzers.steps.tables import RecordTable
from rankscope_analyzers.stragglers.assembly import BLOCK_ROWS, Assembler, Block
from rankscope_analyzers.stragglers.chores import NOTHING, Waited
from rankscope_analyzers.stragglers.detector import NO_LENGTH, Detector, Length
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.rows import PARTS, REQUIRED, USED, Rows, rows_of
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.state import forked
from rankscope_analyzers.stragglers.view import Part

MOST_EARLY = 1 << 18
"""Durations of steps that are held until it is known whether a run is short: 20 MiB."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found in the records of a job.

    Args:
        incidents: in order of detection.
        dropped: records that were of no use.
        known: parts of the step that the newest steps were judged by.
        chores: what first ranks did while all others waited.
        notes: what was compared otherwise than usual, as sentences.
        length: of all that was judged.
    """

    incidents: tuple[Incident, ...]
    dropped: tuple[Dropped, ...]
    known: frozenset[Part] = frozenset()
    chores: Waited = NOTHING
    notes: tuple[str, ...] = ()
    length: Length = NO_LENGTH


def detect(records: RecordTable, job: Layout, block_rows: int = BLOCK_ROWS) -> Judged:
    """Return the incidents in a job's records.

    Args:
        records: all of them.
        job: layout of the job.
        block_rows: records that are judged at once; the answer does not depend on it.

    Raises:
        RecordError: a column is missing, nothing is usable, or records contradict the layout.
    """
    feed = Feed(job, block_rows, whole=False)
    feed.take(records)
    return feed.ended()


def judge(records: RecordTable, job: Layout) -> Judged:
    """Return what is known of a job as of its newest record: in short jobs, sooner than `detect`.

    Raises:
        RecordError: as for `detect`.
    """
    feed = Feed(job)
    feed.take(records)
    return feed.ended()


class Feed:
    """Takes the records of one job as they come and knows what was found in them; bounded.

    Where the stream of records is cut makes no difference to what is found.

    Args:
        job: its layout.
        block_rows: records that are judged at once; the answer does not depend on it.
        whole: what there is of a run may be all of it, and short runs are judged sooner.
    """

    __slots__ = (
        "_account", "_assembler", "_begun", "_detector", "_early", "_shape", "_whole", "job",
    )  # fmt: skip

    def __init__(self, job: Layout, block_rows: int = BLOCK_ROWS, *, whole: bool = True) -> None:
        self.job = job
        self._account = Account()
        self._assembler = Assembler(job, self._account, block_rows)
        self._detector = Detector()
        self._whole = whole
        self._shape: Shape | None = None
        self._begun: Shape | None = None
        self._early: list[Block] = []

    def take(self, records: RecordTable) -> None:
        """Take records none of which started before any that was taken earlier.

        Raises:
            RecordError: a column is missing, or records contradict the layout.
        """
        for rows in _usable(records, self.job, self._account):
            numbered = self._numbered(rows.node, records.node_names)
            self._judge(self._assembler.take(replace(rows, node=numbered)))

    def now(self, newer: RecordTable | None = None) -> Judged:
        """Return what is known as of the newest record; what comes later is judged all the same.

        Args:
            newer: records that are looked at and not taken.

        Raises:
            RecordError: no record so far was usable, or records contradict the layout.
        """
        copy: Feed = forked(self)
        if newer is not None:
            copy.take(newer)
        return copy.ended()

    def miss(self, dropped: Dropped) -> None:
        """Account for records that are not to be taken."""
        self._account.add(dropped)

    def ended(self) -> Judged:
        """Return what is known when the newest record is the last one; nothing can be taken then.

        Raises:
            RecordError: no record was usable, or records contradict the layout.
        """
        self._judge(self._assembler.finish())
        self._begin()
        if self._shape is None:
            raise self._account.nothing_left()
        detector = self._detector
        detector.finish()
        return Judged(
            detector.conclude() if self._whole else detector.incidents,
            self._account.dropped,
            detector.known,
            detector.chores,
            tuple(_notes(self._shape)),
            detector.length,
        )

    def _numbered(self, nodes: Integers, names: tuple[str, ...]) -> Integers:
        """Return the detector's numbers of nodes that are numbered as a table does."""
        there, first = np.unique(nodes, return_index=True)
        there = there[np.argsort(first)]
        there = there[there >= 0]
        numbers = np.full(len(names) + 1, -1, dtype=np.int64)
        numbers[there] = self._detector.number([names[one] for one in there.tolist()])
        return np.asarray(numbers[nodes])

    def _judge(self, made: Iterable[Shape | Block]) -> None:
        for one in made:
            if isinstance(one, Shape):
                self._begin()
                self._begun = self._shape = one
            elif self._begun is None:
                self._feed(one)
            else:
                self._early.append(one)
                if not self._whole or not self._length().is_short or self._is_much():
                    self._begin(goes_on=True)

    def _begin(self, *, goes_on: bool = False) -> None:
        """Judge the beginning of a run, which is all of it unless it goes on."""
        if self._begun is not None and self._early:
            length = self._length()
            short = self._whole and length.is_short and not goes_on
            self._detector.restart(self._begun, length if short else None)
            early, self._early = self._early, []
            for block in early:
                self._feed(block)
        self._begun = None

    def _feed(self, block: Block) -> None:
        self._detector.feed(block.counters, block.ends, block.steps, block.marked)

    def _length(self) -> Length:
        lasted = [np.fmax.reduce(one.steps.step, axis=(1, 2, 3)) for one in self._early]
        seconds = math.fsum(value for one in lasted for value in one[np.isfinite(one)].tolist())
        return Length(sum(map(len, lasted)), seconds)

    def _is_much(self) -> bool:
        return sum(one.steps.step.size for one in self._early) > MOST_EARLY


def _notes(shape: Shape) -> Iterator[str]:
    """Say what is not known of how ranks work together."""
    if shape.pipeline > 1 and not shape.counted:
        yield f"micro-batches of a step were not counted: taken for {shape.microbatches}"


def assembled(
    records: RecordTable, job: Layout, account: Account, block_rows: int = BLOCK_ROWS
) -> Iterator[Shape | Block]:
    """Yield the steps of a job's records, the shape of each run before its blocks.

    Raises:
        RecordError: as for `detect`.
    """
    assembler = Assembler(job, account, block_rows)
    for rows in _usable(records, job, account):
        yield from assembler.take(rows)
    yield from assembler.finish()


def _usable(records: RecordTable, job: Layout, account: Account) -> Iterator[Rows]:
    """Yield the records that can be used, numbered on from those before.

    Raises:
        RecordError: a column is missing, or none of the first ones is usable.
    """
    step_records.require(records.columns, REQUIRED)
    columns = tuple(name for name in USED if name in records.columns)
    parts = tuple(name for name in PARTS if name in columns)
    rules = Rules(REQUIRED, parts, world=None if job.by_groups else job.world)
    before = account.seen
    used = 0
    for batch in records.batches(columns):
        row = batch.row + before
        keep = step_records.usable(batch.table, rules, row, account)
        rows = rows_of(batch.table, row, keep)
        used += len(rows)
        yield rows
    if not used and not before:
        raise account.nothing_left()
