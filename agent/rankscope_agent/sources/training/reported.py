"""Values that training reports about itself: losses, rates, counts; bytes in, values out.

They are in a separate file, `4242-99.sig` for `4242-99.ring`; older probes create none, and older
agents do not look for it. It is one table that is written repeatedly, each slot of which is checked
by itself. A missing value is unknown.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from rankscope_agent.sources.training.companion_file import SLOT_SIZE, open_companion
from rankscope_agent.sources.training.files import OpenRing
from rankscope_agent.sources.training.format import CHECK_MASK, MAX_SEQ, MAX_UNIX_NS, RingError

SUFFIX = ".sig"
MAGIC = b"RKSCSIGN"
CAPACITY = 32
"""Slots, as created by every probe: 2 KiB, which are read at once."""

MAX_VALUE = 1e18
"""Limit of counts and sizes: an exabyte, and more tokens than exist."""

_SLOT = struct.Struct("<QqdqII24x")


class Signal(IntEnum):
    """The contents of a slot, by its index; counts are per process."""

    LOSS = 1
    LOSSES = 2
    NOT_FINITE = 3
    LOSS_LEVEL = 4
    LEARNING_RATE = 5
    SKIPPED_UPDATES = 6
    TOKENS = 7
    PARAMETERS = 8
    DEAD_WORKERS = 9
    CUDA_OUT_OF_MEMORY = 10
    STORE_FREE = 11
    STORE_SIZE = 12
    CHECKPOINTS_KEPT = 13
    PARAMETERS_ONCE = 14
    TOKEN_FLOPS = 15
    SAMPLE_FLOPS = 16
    NUMBERS = 17
    NOT_FINITE_SINCE = 18
    SHARDS = 19
    SHARD_1 = 20
    SHARD_2 = 21
    SHARD_3 = 22
    SHARD_4 = 23
    EPOCH = 24


SHARD_NAMES = (Signal.SHARD_1, Signal.SHARD_2, Signal.SHARD_3, Signal.SHARD_4)
"""CRC-32s of the names of the files that the first non-finite loss came from."""

WHERE_NOT_FINITE = (Signal.NOT_FINITE_SINCE, Signal.SHARDS, *SHARD_NAMES)


COUNTS = frozenset(
    (
        *(Signal.LOSSES, Signal.NOT_FINITE, Signal.SKIPPED_UPDATES, Signal.TOKENS),
        *(Signal.DEAD_WORKERS, Signal.CUDA_OUT_OF_MEMORY),
    )
)
ANY_SIGN = frozenset((Signal.LOSS, Signal.LOSS_LEVEL, Signal.LEARNING_RATE))


class Reading(NamedTuple):
    """A value and the time at which it changed."""

    value: float
    unix_ns: int
    step: int


Signals = Mapping[Signal, Reading]


def parse_signals(content: bytes) -> Signals:
    """Return the contents of a table, without implausible values."""
    whole = memoryview(content)[: min(len(content) // SLOT_SIZE, CAPACITY) * SLOT_SIZE]
    found = {}
    for place, (seq, unix_ns, value, step, kind, check) in enumerate(_SLOT.iter_unpack(whole), 1):
        known = 0 < seq <= MAX_SEQ and kind == place and check == (seq + kind) & CHECK_MASK
        if known and place <= len(Signal) and 0 < unix_ns <= MAX_UNIX_NS and 0 <= step <= MAX_SEQ:
            signal = Signal(kind)
            if _is_plausible(signal, value):
                found[signal] = Reading(value, unix_ns, step)
    return found


def _is_plausible(signal: Signal, value: float) -> bool:
    """Return True if a value is plausible for its signal; a loss may be infinite or NaN."""
    if signal is Signal.LOSS:
        return True
    return math.isfinite(value) and (signal in ANY_SIGN or 0 <= value <= MAX_VALUE)


def open_signals(directory_descriptor: int, ring: OpenRing) -> int | None:
    """Open the table of a ring; return None if there is none, as with older probes.

    Raises:
        RingError: it does not belong to this ring.
    """
    return open_companion(directory_descriptor, ring, SUFFIX, MAGIC, CAPACITY)


class FollowedSignals:
    """A table that is read repeatedly; its creator closes it.

    `left_out` states that what it counts at the next look does not count.
    """

    __slots__ = ("_descriptor", "failure", "left_out")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.left_out = False
        self.failure: RingError | None = None

    def look(self) -> Signals:
        """Return its current contents; empty if it cannot be read."""
        try:
            return read_signals(self._descriptor)
        except OSError as error:
            self.failure = RingError("unreadable", f"cannot be read: {error.strerror}")
            return {}

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def read_signals(descriptor: int) -> Signals:
    """Return the current contents of a table.

    Raises:
        OSError: it cannot be read.
    """
    return parse_signals(os.pread(descriptor, CAPACITY * SLOT_SIZE, SLOT_SIZE))
