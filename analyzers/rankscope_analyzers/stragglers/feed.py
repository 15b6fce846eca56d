"""From the records of a job, however they are stored, to its incidents: the detector's input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rankscope_analyzers.numeric.arrays import Integers
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account, Dropped
from rankscope_analyzers.steps.rows import usable_rows
from rankscope_analyzers.steps.tables import RecordTable
from rankscope_analyzers.stragglers.assembly import BLOCK_ROWS, Assembler, Block
from rankscope_analyzers.stragglers.baselines import NEW_PACE_SECONDS
from rankscope_analyzers.stragglers.detector import EMPTY_LENGTH, Detector, RunLength
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.rank_zero_work import NO_WAITS, RankZeroWaits
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.state import forked
from rankscope_analyzers.stragglers.view import Part
from rankscope_analyzers.text.wording import clock

MAXIMUM_PENDING = 1 << 18
"""Step durations that are buffered until it is known whether a run is short: 20 MiB."""

STALLED_SHARE = 0.1
"""Share of the steps of a short run, the longest ones, that its usual step is not judged by."""


@dataclass(frozen=True, slots=True)
class Detection:
    """The result of detection in the records of a job.

    Args:
        incidents: in order of detection.
        dropped: records that could not be used.
        known: parts of the step that are measured in the newest steps.
        rank_zero_waits: how long all ranks waited for rank 0.
        notes: assumptions that were made, as sentences.
        length: of all steps that were judged.
    """

    incidents: tuple[Incident, ...]
    dropped: tuple[Dropped, ...]
    known: frozenset[Part] = frozenset()
    rank_zero_waits: RankZeroWaits = NO_WAITS
    notes: tuple[str, ...] = ()
    length: RunLength = EMPTY_LENGTH


def detect(records: RecordTable, job: Layout, block_rows: int = BLOCK_ROWS) -> Detection:
    """Return the incidents in a job's records.

    Args:
        records: all of them.
        job: layout of the job.
        block_rows: records that are judged at once; the answer does not depend on it.

    Raises:
        RecordError: a column is missing, nothing is usable, or records contradict the layout.
    """
    feed = Feed(job, block_rows, complete=False)
    feed.add(records)
    return feed.finish()


def detect_latest(records: RecordTable, job: Layout) -> Detection:
    """Return the incidents as of the newest record: in short jobs sooner than `detect`.

    Raises:
        RecordError: as for `detect`.
    """
    feed = Feed(job)
    feed.add(records)
    return feed.finish()


class Feed:
    """Detects the incidents of one job from its records as they come; bounded memory.

    The result does not depend on how the records are split into batches.

    Args:
        job: its layout.
        block_rows: records that are judged at once; the answer does not depend on it.
        complete: True if the known steps of a run may be all of it; short runs are judged sooner.
    """

    __slots__ = (
        "_account",
        "_assembler",
        "_complete",
        "_detector",
        "_pending_blocks",
        "_pending_shape",
        "_shape",
        "job",
    )  # fmt: skip

    def __init__(self, job: Layout, block_rows: int = BLOCK_ROWS, *, complete: bool = True) -> None:
        self.job = job
        self._account = Account()
        self._assembler = Assembler(job, self._account, block_rows)
        self._detector = Detector()
        self._complete = complete
        self._shape: Shape | None = None
        self._pending_shape: Shape | None = None
        self._pending_blocks: list[Block] = []

    def add(self, records: RecordTable) -> None:
        """Add records, none of which started before any that was added earlier.

        Raises:
            RecordError: a column is missing, or records contradict the layout.
        """
        for rows in usable_rows(records, self._account, _world(self.job)):
            numbered = self._numbered(rows.node, records.node_names)
            self._judge(self._assembler.add(replace(rows, node=numbered)))

    def release(self, ranks: Integers) -> None:
        """Judge the steps that are complete: the answer is the same, and known sooner.

        Args:
            ranks: those with records still to come; none of any other rank may be added.

        Raises:
            RecordError: records contradict the layout.
        """
        self._judge(self._assembler.release(ranks))

    def latest(self) -> Detection | None:
        """Return the incidents as of the newest step that was judged; change nothing.

        The result is None if records wait that a copy would have to judge, as in a short run.
        """
        if self._pending_shape is not None or self._shape is None or self._detector.awaits:
            return None
        return self._detection()

    @property
    def held(self) -> int:
        """Return how many records wait for others of their steps."""
        return self._assembler.held

    def peek(self, newer: RecordTable | None = None) -> Detection:
        """Return the incidents as of the newest record without changing the state.

        Args:
            newer: records to judge in addition.

        Raises:
            RecordError: no record so far was usable, or records contradict the layout.
        """
        copy: Feed = forked(self)
        if newer is not None:
            copy.add(newer)
        return copy.finish()

    def add_dropped(self, dropped: Dropped) -> None:
        """Count records that are left out."""
        self._account.add(dropped)

    def finish(self) -> Detection:
        """End the input and return the incidents; nothing can be added afterwards.

        Raises:
            RecordError: no record was usable, or records contradict the layout.
        """
        self._judge(self._assembler.finish())
        self._judge_pending()
        if self._shape is None:
            raise self._account.nothing_left()
        self._detector.finish()
        return self._detection()

    def _detection(self) -> Detection:
        detector = self._detector
        return Detection(
            detector.latest_incidents() if self._complete else detector.incidents,
            self._account.dropped,
            detector.known,
            detector.rank_zero_waits,
            (*(_notes(self._shape) if self._shape else ()), *_of_new_pace(detector.new_pace)),
            detector.length,
        )

    def _numbered(self, nodes: Integers, names: tuple[str, ...]) -> Integers:
        """Convert a table's node numbers into those of the detector."""
        there, first = np.unique(nodes, return_index=True)
        there = there[np.argsort(first)]
        there = there[there >= 0]
        numbers = np.full(len(names) + 1, -1, dtype=np.int64)
        numbers[there] = self._detector.node_numbers([names[one] for one in there.tolist()])
        return np.asarray(numbers[nodes])

    def _judge(self, assembled_parts: Iterable[Shape | Block]) -> None:
        for one in assembled_parts:
            if isinstance(one, Shape):
                self._judge_pending()
                self._pending_shape = self._shape = one
            elif self._pending_shape is None:
                self._feed(one)
            else:
                self._pending_blocks.append(one)
                if not self._complete or not self._length().is_short or self._is_pending_full():
                    self._judge_pending(goes_on=True)

    def _judge_pending(self, *, goes_on: bool = False) -> None:
        """Judge the buffered beginning of a run, which is all of it unless it continues."""
        if self._pending_shape is not None and self._pending_blocks:
            length = self._length()
            short = self._complete and length.is_short and not goes_on
            self._detector.start_run(self._pending_shape, length if short else None)
            pending, self._pending_blocks = self._pending_blocks, []
            for block in pending:
                self._feed(block)
        self._pending_shape = None

    def _feed(self, block: Block) -> None:
        self._detector.feed(block.counters, block.ends, block.steps, block.marked)

    def _length(self) -> RunLength:
        """Return the length of the buffered beginning, as if no step of it had stood still.

        Stalls of a second would make a short job of tenths of seconds a long one, in which several
        steps are averaged: few would be left to judge by.
        """
        lasted = [np.fmax.reduce(one.steps.step, axis=(1, 2, 3)) for one in self._pending_blocks]
        known = np.sort(np.concatenate([one[np.isfinite(one)] for one in lasted]))
        usual = known[: math.ceil(known.size * (1.0 - STALLED_SHARE))]
        seconds = float(usual.mean()) * known.size if usual.size else 0.0
        return RunLength(sum(map(len, lasted)), seconds)

    def _is_pending_full(self) -> bool:
        return sum(one.steps.step.size for one in self._pending_blocks) > MAXIMUM_PENDING


def _of_new_pace(found: tuple[float, float, float] | None) -> Iterator[str]:
    """Describe the baseline that the job is no longer compared with."""
    if found is None:
        return
    since, observed, expected = found
    yield (
        f"since {clock(since)} all ranks have taken {observed / expected:.2f} times as long as"
        f" before, for {NEW_PACE_SECONDS / 3600:.0f} hours: that is taken for the job's pace now"
    )


def _notes(shape: Shape) -> Iterator[str]:
    """Describe what had to be assumed about the layout."""
    if shape.contradicting:
        yield "ranks name other groups from step to step: all are compared with each other"
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
    for rows in usable_rows(records, account, _world(job)):
        yield from assembler.add(rows)
    yield from assembler.finish()


def _world(job: Layout) -> int | None:
    """Return the ranks that records may be of, None to take them from the records."""
    return None if job.by_groups else job.world
