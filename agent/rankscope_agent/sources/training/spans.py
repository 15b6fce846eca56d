"""What a probe marks besides steps: checkpoints, evaluations, compiling; bytes in, values out.

Spans are in a separate file, `4242-99.span` for `4242-99.ring`; older probes create none, and older
agents do not look for it. A slot is written when its span begins and again when it ends, so that an
open one is visible. Nothing in it is believed before it has been checked.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence, Set
from typing import NamedTuple

from rankscope_agent.contract.model import SPAN_KINDS, SPAN_OUTCOMES
from rankscope_agent.sources.training.companion_file import SLOT_SIZE, open_companion
from rankscope_agent.sources.training.files import OpenRing
from rankscope_agent.sources.training.format import (
    CHECK_MASK,
    MAX_SEQ,
    MAX_STEP_NS,
    MAX_UNIX_NS,
    NOT_MEASURED,
    RingError,
)
from rankscope_agent.sources.training.listing import SETTLED_SECONDS

NS = 10**9
SUFFIX = ".span"
MAGIC = b"RKSCSPAN"
CAPACITY = 1024
"""Slots, as created by every probe: 64 KiB, which are read at once."""

MAX_BYTES = 1 << 60
"""An exabyte: no file is that large."""

BESIDE_TRAINING, AFTER_SIGTERM, IN_MEMORY, ONE_FILE, NOT_THERE = 1, 2, 4, 8, 16
UNKNOWN_STEP = 0xFFFFFFFF

_SLOT = struct.Struct("<QqqqqIIHBBIII")


class Span(NamedTuple):
    """One slot; durations in nanoseconds, `NOT_MEASURED` if unknown or not over."""

    seq: int
    start_unix_ns: int
    duration_ns: int
    blocked_ns: int
    size: int
    step: int
    target: int
    flags: int
    kind: int
    outcome: int
    reserved: int
    reserved_too: int
    check: int

    @property
    def kind_name(self) -> str:
        """What was done, one of `SPAN_KINDS`."""
        return SPAN_KINDS[self.kind - 1]

    @property
    def end_unix_ns(self) -> int:
        """When it ended; for one that is open or was cut off, when it began."""
        return self.start_unix_ns + max(self.duration_ns, 0)

    @property
    def is_open(self) -> bool:
        """Return True if its end has not been written."""
        return self.outcome == SPAN_OUTCOMES.index("open")


def parse_spans(content: bytes) -> Sequence[Span]:
    """Return the spans in consecutive slots by their numbers, without implausible ones."""
    whole = memoryview(content)[: len(content) // SLOT_SIZE * SLOT_SIZE]
    spans = map(Span._make, _SLOT.iter_unpack(whole))
    return sorted(span for slot, span in enumerate(spans) if _is_plausible(span, slot))


def _is_plausible(span: Span, slot: int) -> bool:
    """Return True for a complete slot at its own index; kinds of newer probes are left out."""
    return (
        0 < span.seq <= MAX_SEQ
        and (span.seq - 1) % CAPACITY == slot
        and span.check == (4 * span.seq + span.outcome) & CHECK_MASK
        and 1 <= span.kind <= len(SPAN_KINDS)
        and 0 <= span.outcome < SPAN_OUTCOMES.index("interrupted")
        and 0 < span.start_unix_ns <= MAX_UNIX_NS
        and NOT_MEASURED <= span.duration_ns <= MAX_STEP_NS
        and (span.duration_ns == NOT_MEASURED) == span.is_open
        and NOT_MEASURED <= span.blocked_ns <= MAX_STEP_NS
        and NOT_MEASURED <= span.size <= MAX_BYTES
    )


def open_spans(directory_descriptor: int, ring: OpenRing) -> int | None:
    """Open the spans of a ring; return None if there are none, as with older probes.

    Raises:
        RingError: they do not belong to this ring.
    """
    return open_companion(directory_descriptor, ring, SUFFIX, MAGIC, CAPACITY)


class SpanPosition(NamedTuple):
    """Which spans of a file have been counted: all up to a number, except some that were open."""

    newest: int = 0
    open: tuple[int, ...] = ()

    def contains(self, seq: int) -> bool:
        """Return True if a span has been counted."""
        return seq <= self.newest and seq not in self.open


MAX_OPEN = 16
"""Open spans remembered in a position, the newest ones: a program does a few things at a time."""


class FollowedSpans:
    """A file of spans that is read repeatedly; its creator closes it.

    `counted` are those that an earlier agent counted, `position` includes those read by this one.
    """

    __slots__ = (
        "_counted", "_descriptor", "_modified_ns", "_settled", "_spans", "counted", "failure",
        "position",
    )  # fmt: skip

    def __init__(self, descriptor: int) -> None:
        self.counted = self.position = SpanPosition()
        self._descriptor = descriptor
        self._modified_ns = -1
        self._settled = False
        self._spans: Sequence[Span] = ()
        self._counted: set[int] = set()
        self.failure: RingError | None = None

    def look(
        self, now_unix_seconds: float, *, alive: bool
    ) -> tuple[Sequence[Span], Sequence[Span]]:
        """Return the spans that have ended since the previous call, and those that are open.

        Args:
            now_unix_seconds: the Unix time.
            alive: whether the process that writes them is alive; if not, none is open any longer.
        """
        try:
            self._read_if_changed(now_unix_seconds)
        except OSError as error:
            self.failure = RingError("unreadable", f"cannot be read: {error.strerror}")
        new = [span for span in self._spans if span.seq not in self._counted]
        ended = [span for span in new if not (alive and span.is_open)]
        listed = {span.seq for span in self._spans}
        self._counted = (self._counted & listed) | {span.seq for span in ended}
        if ended:
            self.position = _position(listed, listed - self._counted)
        return ended, [span for span in new if alive and span.is_open]

    def _read_if_changed(self, now: float) -> None:
        """Read the file unless nothing can have been written to it since it was last read.

        Raises:
            OSError: it cannot be read.
        """
        modified_ns = os.fstat(self._descriptor).st_mtime_ns
        unchanged = modified_ns == self._modified_ns
        if unchanged and self._settled:
            return
        self._spans = read_spans(self._descriptor)
        self._modified_ns = modified_ns
        # What is written twice within a tick of the file system's clock has one time of change. A
        # file server's clock may be behind, so it is read a second time in any case.
        self._settled = unchanged and now - modified_ns / NS > SETTLED_SECONDS

    def leave_out(self) -> None:
        """Take the spans that have ended by now for counted."""
        try:
            spans = read_spans(self._descriptor)
        except OSError:  # the next look reports it
            return
        still_open = {span.seq for span in spans if span.is_open}
        self.continue_after(_position({span.seq for span in spans}, still_open))

    def continue_after(self, position: SpanPosition) -> None:
        """Take the spans of a position for counted."""
        self.counted = self.position = position

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def _position(listed: Set[int], still_open: Set[int]) -> SpanPosition:
    return SpanPosition(max(listed, default=0), tuple(sorted(still_open)[-MAX_OPEN:]))


def read_spans(descriptor: int) -> Sequence[Span]:
    """Return the current contents of a file of spans, oldest first.

    Raises:
        OSError: it cannot be read.
    """
    return parse_spans(os.pread(descriptor, CAPACITY * SLOT_SIZE, SLOT_SIZE))
