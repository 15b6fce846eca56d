"""The extension of a ring: data of newer probes beyond version 1 of the record.

It is a separate file, `4242-99.ext` for `4242-99.ring`, because older agents reject a ring that is
longer than expected, or of another version. Its slots have the same numbers as the ring's. If steps
last more than a second they are written before the records, else up to a second later. Rings of
older probes have none; one that is damaged, or belongs to another ring, only costs these columns.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from rankscope_agent.sources.training.companion_file import SLOT_SIZE, open_companion
from rankscope_agent.sources.training.files import OpenRing
from rankscope_agent.sources.training.format import (
    CHECK_MASK,
    NOT_MEASURED,
    RingError,
    StepRecord,
)

SUFFIX = ".ext"
MAGIC = b"RKSCEXTN"
UNKNOWN_MICROBATCHES = 0xFFFF

TIMEOUT_NS = 2 * 10**9
"""How long a record without its slot is left to the next reading: a probe may be a second late, but
it writes only at the end of a step, which may take longer. A hung rank shows its newest steps after
this time."""

_SLOT = struct.Struct("<QqqqqqqHeI")
_NS_PER_MS = 10**6


class Extension(NamedTuple):
    """One slot of the file; durations in nanoseconds, `NOT_MEASURED` if unknown.

    `other_ns` is the part of the ring's compute time that is not compute: optimizer, evaluation,
    checkpoints, logging. `checkpoint_ns` and `evaluation_ns` are parts of it. `copies_ns` and
    `host_late_ns` concern the device's training stream and are parts of compute: waits for copies
    of other streams, and the maximum time without work queued. `loader_ms` is the time that the
    loader's worker processes, running in parallel, need for the batches of a step; 0 if unknown.
    """

    seq: int
    other_ns: int
    cpu_wait_ns: int
    checkpoint_ns: int
    evaluation_ns: int
    copies_ns: int
    host_late_ns: int
    microbatches: int
    loader_ms: float
    check: int

    def fits(self, record: StepRecord) -> bool:
        """Return True if it belongs to a record and does not contradict it."""
        return (
            self.seq == record.seq
            and self.check == record.seq & CHECK_MASK
            and NOT_MEASURED <= self.other_ns <= max(record.compute_ns, NOT_MEASURED)
            and NOT_MEASURED <= self.cpu_wait_ns <= record.step_ns
            and NOT_MEASURED <= self.checkpoint_ns <= record.step_ns
            and NOT_MEASURED <= self.evaluation_ns <= record.step_ns
            and NOT_MEASURED <= self.copies_ns <= record.step_ns
            and NOT_MEASURED <= self.host_late_ns <= record.step_ns
        )


def extended(record: StepRecord, extension: Extension | None) -> StepRecord:
    """Return a record with the values of its extension; unchanged without one.

    The ring's compute time includes the rest of the step as well, for older agents.
    """
    if extension is None or not extension.fits(record):
        return record
    counted = extension.microbatches not in (0, UNKNOWN_MICROBATCHES)
    loads = math.isfinite(extension.loader_ms) and extension.loader_ms > 0
    return record._replace(
        compute_ns=record.compute_ns - max(extension.other_ns, 0),
        other_ns=extension.other_ns,
        waited_ns=extension.cpu_wait_ns,
        microbatches=extension.microbatches if counted else None,
        checkpoint_ns=extension.checkpoint_ns,
        evaluation_ns=extension.evaluation_ns,
        copies_ns=extension.copies_ns,
        host_late_ns=extension.host_late_ns,
        loader_ns=round(extension.loader_ms * _NS_PER_MS) if loads else NOT_MEASURED,
    )


class OpenExtension:
    """The extension of an open ring, with its own descriptor.

    `failure` is why it can no longer be read; None while it can.
    """

    __slots__ = ("_capacity", "_descriptor", "failure")

    def __init__(self, descriptor: int, capacity: int) -> None:
        self._descriptor = descriptor
        self._capacity = capacity
        self.failure: RingError | None = None

    def join(
        self, records: Sequence[StepRecord], now_unix_ns: int | None = None
    ) -> Sequence[StepRecord]:
        """Return consecutive records, except damaged ones, with the known values of the extension.

        Args:
            records: of the ring.
            now_unix_ns: time at which its process lives; None if it has ended. A record without its
                slot is then left out, with all that follow it, for `TIMEOUT_NS`.
        """
        if not records or self.failure:
            return records
        try:
            slots = self._read(records[0].seq, records[-1].seq - records[0].seq + 1)
        except OSError as error:
            self.failure = RingError("unreadable", f"cannot be read: {error.strerror}")
            return records
        joined = [extended(record, slots.get(record.seq)) for record in records]
        if now_unix_ns is None:
            return joined
        return list(takewhile(lambda record: not _awaits(record, slots, now_unix_ns), joined))

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def _read(self, first_seq: int, count: int) -> Mapping[int, Extension]:
        """Read the slots of consecutive records, wrapping around the end if necessary."""
        slot = (first_seq - 1) % self._capacity
        before_end = min(count, self._capacity - slot)
        stretch = self._slots(slot, before_end)
        if count > before_end and len(stretch) == before_end * SLOT_SIZE:
            stretch += self._slots(0, count - before_end)
        whole = memoryview(stretch)[: len(stretch) // SLOT_SIZE * SLOT_SIZE]
        found = map(Extension._make, _SLOT.iter_unpack(whole))
        return {extension.seq: extension for extension in found}

    def _slots(self, slot: int, count: int) -> bytes:
        return os.pread(self._descriptor, count * SLOT_SIZE, SLOT_SIZE * (1 + slot))


def _awaits(record: StepRecord, slots: Mapping[int, Extension], now_unix_ns: int) -> bool:
    """Return True if a record's slot is likely to be written soon."""
    age_ns = now_unix_ns - record.start_unix_ns - record.step_ns
    return record.seq not in slots and abs(age_ns) < TIMEOUT_NS


def open_extension(directory_descriptor: int, ring: OpenRing) -> OpenExtension | None:
    """Open the extension of a ring; return None if there is none, as with older probes.

    Raises:
        RingError: it is not an extension of this ring.
    """
    capacity = ring.header.capacity
    descriptor = open_companion(directory_descriptor, ring, SUFFIX, MAGIC, capacity)
    return None if descriptor is None else OpenExtension(descriptor, capacity)
