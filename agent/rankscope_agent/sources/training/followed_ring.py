"""One ring that is followed, with the files that belong to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from rankscope_agent.sources.training.cursor import Cursor, read_record
from rankscope_agent.sources.training.ends import EndWatch
from rankscope_agent.sources.training.extension import OpenExtension
from rankscope_agent.sources.training.files import Liveness, OpenRing
from rankscope_agent.sources.training.format import RingError, StepRecord
from rankscope_agent.sources.training.reported import FollowedSignals
from rankscope_agent.sources.training.ring_key import ring_key
from rankscope_agent.sources.training.spans import FollowedSpans, SpanPosition
from rankscope_agent.sources.training.totals import Position

NS = 10**9

REREAD = 128
"""Records that are read again although they are in the totals: twice as many as it takes to know a
rank's usual batch, and its newest step among them."""


class FollowedRing:
    """A ring that is followed, as of the last reading.

    `refusal` is why its extension is not read, `ended_unix_seconds` when its process ended: None
    while it lives, and if it had ended before the first reading. `turn` is the number of its newest
    reading among all rings, 0 before the first. `first_step_unix_ns` is when its process ended its
    first step, which has no record; None if the ring does not say. `behind` is True until it has
    been read to its end for the first time. `placed` is True once it has been determined up to
    where it is in the totals of an earlier agent, which its cursor knows.
    """

    __slots__ = (
        "_ends", "_extension", "_refusal", "_seen_alive", "_watch", "behind", "cursor",
        "ended_unix_seconds", "first_step_unix_ns", "key", "linked", "liveness", "placed", "ring",
        "signals", "spans", "turn",
    )  # fmt: skip

    def __init__(
        self,
        ring: OpenRing,
        cursor: Cursor,
        ends: EndWatch,
        extension: OpenExtension | None = None,
        refusal: RingError | None = None,
        spans: FollowedSpans | None = None,
        signals: FollowedSignals | None = None,
    ) -> None:
        self.spans = spans
        self.signals = signals
        self.ring = ring
        self.cursor = cursor
        self._extension = extension
        self._refusal = refusal
        self.liveness: Liveness = "alive"
        self.linked = True
        self.behind = True
        self.placed = False
        self.key = ring_key(ring.inode, ring.header.created_unix_ns, ring.name)
        self.turn = 0
        self.first_step_unix_ns: int | None = None
        self.ended_unix_seconds: float | None = None
        self._ends = ends
        self._watch = ends.add(ring.descriptor)
        self._seen_alive = False

    @property
    def job_id(self) -> str:
        """The job that it counts for."""
        return self.ring.header.job_id

    @property
    def process(self) -> tuple[int, int]:
        """The writing process: its PID, and its start in ticks."""
        return self.ring.header.pid, self.ring.header.process_start_ticks

    @property
    def position(self) -> Position:
        """Up to where it is in the totals."""
        seq = max(self.cursor.counted, self.cursor.next_seq - 1)
        spans = self.spans.position if self.spans else SpanPosition()
        return Position(self.ring.header.created_unix_ns, seq, spans)

    @property
    def has_steps(self) -> bool:
        """Return True if its process has ended a step that is recorded, as far as known."""
        return bool(self.cursor.found or self.position.seq)

    @property
    def last_step_unix_ns(self) -> int:
        """When the newest step that was there at first ended, or its process created the ring."""
        with suppress(OSError):  # the next reading reports it
            newest = read_record(self.ring.descriptor, self.cursor.found, self.cursor.capacity)
            if newest is not None:
                return newest.start_unix_ns + newest.step_ns
        return self.ring.header.created_unix_ns

    def leave_out(self) -> None:
        """Leave out of the totals what it contains by now, except for its newest record.

        That shows that the rank has made a step, and how long its steps take.
        """
        self.cursor.counted = max(0, self.cursor.found - 1)
        if self.spans:
            self.spans.leave_out()
        if self.signals:
            self.signals.left_out = True

    def continue_after(self, position: Position) -> None:
        """Count only what is not in the totals of an earlier agent."""
        cursor = self.cursor
        cursor.counted = position.seq
        if self.spans:
            self.spans.continue_after(position.spans)
        if cursor.next_seq > position.seq:
            cursor.next_seq = position.seq + 1  # what has been overwritten since is lost
            return
        with suppress(OSError):  # the next reading reports it
            self._note_first(read_record(self.ring.descriptor, 1, cursor.capacity))
        cursor.next_seq = max(cursor.next_seq, position.seq - REREAD + 1)

    def _note_first(self, record: StepRecord | None) -> None:
        if record is not None and record.seq == 1 and record.step == 1:
            self.first_step_unix_ns = record.start_unix_ns

    @property
    def finished(self) -> bool:
        """Return True if nothing more can be written to it."""
        ended = self.liveness == "ended" or (self.liveness == "silent" and not self.linked)
        return ended and self.cursor.at_newest

    @property
    def refusal(self) -> RingError | None:
        """Why its other files are not read; None if they are, or if there are none."""
        failure = self._extension.failure if self._extension else self._refusal
        failures = (beside.failure for beside in (self.spans, self.signals) if beside)
        return failure or next(filter(None, failures), None)

    def close(self) -> None:
        """Close its descriptors."""
        self._ends.remove(self._watch)
        os.close(self.ring.descriptor)
        for beside in (self._extension, self.spans, self.signals):
            if beside:
                beside.close()

    def read(self, now_unix_seconds: float, limit: int) -> Iterator[Sequence[StepRecord]]:
        """Yield what was written since the last reading, in batches, up to about `limit` records.

        Raises:
            OSError: the file cannot be read.
        """
        # Checked before reading, so that the last records of an ended process are read as well.
        self.liveness = self.ring.liveness(now_unix_seconds)
        self._note_end(now_unix_seconds)
        for records in self.cursor.read(self.ring.descriptor, limit):
            self._note_first(records[0])
            if self._extension is None:
                yield records
                continue
            now = round(now_unix_seconds * NS) if self.liveness == "alive" else None
            joined = self._extension.join(records, now)
            if joined:
                yield joined
            if len(joined) < len(records):
                self.cursor.next_seq = records[len(joined)].seq
                return

    def _note_end(self, now_unix_seconds: float) -> None:
        if self.liveness == "alive":
            self._seen_alive = True
        elif self._seen_alive and self.liveness == "ended" and self.ended_unix_seconds is None:
            # By the node's current clock, which may have been set since.
            closed = self._ends.closed_at(self._watch)
            self.ended_unix_seconds = now_unix_seconds if closed is None else closed


def goes_on_beside(rings: Iterable[FollowedRing], other: FollowedRing, now: float) -> bool:
    """Return True if a process without steps is none of its job's ranks, which go on beside it.

    See `ring_rows.of_ranks`.

    Args:
        rings: all that are open.
        other: that of the process.
        now: the Unix time.
    """
    if other.has_steps:
        return False
    return any(_is_older_rank(one, other) and _is_alive(one, now) for one in rings)


def _is_older_rank(one: FollowedRing, other: FollowedRing) -> bool:
    known, new = one.ring.header, other.ring.header
    is_rank = one.has_steps and known.created_unix_ns < new.created_unix_ns
    joined_others = known.rank == new.rank or known.world_size != new.world_size
    return is_rank and known.job_id == new.job_id and joined_others


def _is_alive(one: FollowedRing, now: float) -> bool:
    with suppress(OSError):  # its next reading reports it
        return one.ring.liveness(now) == "alive"
    return False
