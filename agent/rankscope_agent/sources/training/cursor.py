"""A read position in an open ring: the next record, and records lost to overwriting.

The writer keeps no head index: a record exists if its slot says so. Only pread is used, so a file
that is truncated while it is read yields fewer bytes and nothing worse.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from rankscope_agent.sources.training.format import (
    HEADER_SIZE,
    RECORD_SIZE,
    Run,
    StepRecord,
    parse_run,
    seq_in_slot,
)

FIRST_CHUNK = 32
"""Records in the first pread of a reading: 2 KiB, more than one reading per second usually
finds."""

MAX_CHUNK = 1024
"""Records per pread while catching up: 64 KiB, above which larger reads are no faster."""

MAX_OVERRUNS = 8
"""Overruns handled in one reading. A writer that overtakes its reader more often writes faster than
can be read; the next reading continues where this one ended."""


class Cursor:
    """The read position in one ring.

    `next_seq` is the number of the record to read next, `lost` counts records overwritten before
    they were read, `corrupt` those left out because they are damaged or contradict themselves.
    `at_newest` states whether the last reading ended at the newest record. `found` is the number of
    the newest record when the ring was opened. Records up to number `counted` are in its rank's
    totals already: reading them again shows how the rank ran last, and none of them counts as lost
    or damaged.
    """

    __slots__ = ("at_newest", "capacity", "corrupt", "counted", "found", "lost", "next_seq")

    def __init__(self, capacity: int, next_seq: int, found: int = 0) -> None:
        self.capacity = capacity
        self.next_seq = next_seq
        self.found = found
        self.counted = 0
        self.lost = 0
        self.corrupt = 0
        self.at_newest = False

    def read(self, descriptor: int, limit: int) -> Iterator[list[StepRecord]]:
        """Yield the following records, in batches, up to the newest one or about `limit`.

        Raises:
            OSError: the file cannot be read.
        """
        self.at_newest = False
        chunk, overruns, left = FIRST_CHUNK, 0, limit
        while left > 0:
            run = self._look(descriptor, min(chunk, left))
            self.corrupt += run.corrupt if self.next_seq > self.counted else 0
            self.next_seq += run.taken
            left -= run.taken
            if run.records:
                yield run.records
            if run.stopped_by == "head" or (run.stopped_by == "end" and not run.taken):
                self.at_newest = True
                return
            if run.stopped_by == "overrun":
                overruns += 1
                if overruns > MAX_OVERRUNS:
                    return
                self._catch_up(descriptor, run.seq)
            elif run.stopped_by == "gap":
                left -= max(1, self._skip_gap(descriptor, run.seq))
            chunk = MAX_CHUNK

    def _look(self, descriptor: int, records: int) -> Run:
        return _read_run(descriptor, self.next_seq, records, self.capacity)

    def _catch_up(self, descriptor: int, newer_seq: int) -> None:
        """Move to the oldest record still present, given one that overwrote the next."""
        newest = find_newest(descriptor, newer_seq, self.capacity)
        oldest = newest - self.capacity + 1
        self.lost += max(0, oldest - max(self.next_seq, self.counted + 1))
        self.next_seq = oldest

    def _skip_gap(self, descriptor: int, later_seq: int) -> int:
        """Skip records that stay unreadable although later ones are present.

        The bytes of one pread are not from one instant: both records may have been written while it
        copied. So the gap counts only if a second read, begun after the later record was seen,
        still has it.

        Returns:
            The number of records skipped.
        """
        again = self._look(descriptor, later_seq - self.next_seq + 1)
        if again.taken or again.stopped_by != "gap":
            return 0
        skipped = again.seq - self.next_seq
        self.corrupt += skipped if self.next_seq > self.counted else 0
        self.next_seq = again.seq
        return skipped


def locate(descriptor: int, capacity: int) -> Cursor:
    """Return a cursor at the oldest record of a ring.

    Raises:
        OSError: the file cannot be read.
    """
    newest = newest_seq(descriptor, capacity)
    return Cursor(capacity, oldest_seq(newest, capacity), newest)


def newest_seq(descriptor: int, capacity: int) -> int:
    """Return the number of a ring's newest record; 0 if it has none.

    Raises:
        OSError: the file cannot be read.
    """
    for slot in range(min(FIRST_CHUNK, capacity)):
        seq = _read_seq(descriptor, slot, capacity)
        if seq:
            return find_newest(descriptor, seq, capacity)
    return 0


def oldest_seq(newest: int, capacity: int) -> int:
    """Return the number of the oldest record that a ring still holds."""
    return max(1, newest - capacity + 1)


def find_newest(descriptor: int, known_seq: int, capacity: int) -> int:
    """Find the newest record by bisection, given the number of an existing one.

    The slots after the known one hold its successors up to the newest, then older records. A
    damaged slot can end a bisection early, so the slots after its result are examined as well.

    Raises:
        OSError: the file cannot be read.
    """
    newest = known_seq
    for _ in range(MAX_OVERRUNS):
        newest = _bisect(descriptor, newest, capacity)
        run = _read_run(descriptor, newest + 1, FIRST_CHUNK, capacity)
        newest += run.taken
        if run.stopped_by != "gap":
            break
        newest = run.seq
    return newest


def _bisect(descriptor: int, known_seq: int, capacity: int) -> int:
    low, high = known_seq, known_seq + capacity
    while high - low > 1:
        middle = (low + high) // 2
        if _read_seq(descriptor, (middle - 1) % capacity, capacity) == middle:
            low = middle
        else:
            high = middle
    return low


def read_record(descriptor: int, seq: int, capacity: int) -> StepRecord | None:
    """Read one record; return None if it does not exist or is not plausible.

    Raises:
        OSError: the file cannot be read.
    """
    records = _read_run(descriptor, seq, 1, capacity).records
    return records[0] if records else None


def _read_run(descriptor: int, seq: int, count: int, capacity: int) -> Run:
    """Read consecutive slots from that of a record on, wrapping around the end of the ring."""
    slot, count = (seq - 1) % capacity, min(count, capacity)
    before_end = min(count, capacity - slot)
    stretch = _read_slots(descriptor, slot, before_end)
    if count > before_end and len(stretch) == before_end * RECORD_SIZE:
        stretch += _read_slots(descriptor, 0, count - before_end)
    return parse_run(stretch, seq, capacity)


def _read_seq(descriptor: int, slot: int, capacity: int) -> int:
    return seq_in_slot(_read_slots(descriptor, slot, 1), slot, capacity)


def _read_slots(descriptor: int, slot: int, count: int) -> bytes:
    return os.pread(descriptor, count * RECORD_SIZE, HEADER_SIZE + slot * RECORD_SIZE)
