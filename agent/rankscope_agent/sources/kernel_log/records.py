"""Records of the kernel's ring buffer as its interfaces return them: pure, from bytes to records.

/dev/kmsg (Documentation/ABI/testing/dev-kmsg) returns one record per read: priority, sequence
number and microseconds since boot, flags, then the text; the following lines that begin with a
space are `KEY=value`. syslog(2) returns lines `<priority>[seconds.microseconds] text` without
sequence numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FACILITY_BITS = 3
"""A priority is a facility, shifted left by three, plus a level; the kernel's facility is 0."""

MAX_TEXT_BYTES = 4096
"""Longest text of a record: four times the kernel's own limit (LOG_LINE_MAX)."""

_KMSG = re.compile(
    rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};([^\n]{0,%d})" % MAX_TEXT_BYTES
)
_KLOG = re.compile(
    rb"<(\d{1,10})>\[ {0,12}(\d{1,12})\.(\d{6})\](?:\[[^\]\n]{0,16}\])? ?([^\n]{0,%d})"
    % MAX_TEXT_BYTES
)


@dataclass(frozen=True, slots=True)
class Record:
    """One message of the kernel.

    Args:
        position: its ascending position: a sequence number, or microseconds since boot.
        seconds: when it was written, in seconds since boot.
        text: the message; empty if a program wrote it.
    """

    position: int
    seconds: float
    text: bytes


def parse_kmsg(data: bytes) -> Record | None:
    """Return the record from one read of /dev/kmsg; None if it is garbage."""
    match = _KMSG.match(data)
    if match is None:
        return None
    priority, sequence, microseconds, text = match.groups()
    own = int(priority) >> FACILITY_BITS == 0
    return Record(int(sequence), int(microseconds) / 1e6, text if own else b"")


def parse_klog(data: bytes) -> Iterator[Record]:
    """Yield the records of a ring in syslog(2)'s format, except those without a time stamp."""
    for line in data.split(b"\n"):
        match = _KLOG.match(line)
        if match is not None:
            priority, seconds, microseconds, text = match.groups()
            position = int(seconds) * 1_000_000 + int(microseconds)
            own = int(priority) >> FACILITY_BITS == 0
            yield Record(position, position / 1e6, text if own else b"")


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one reading of a source.

    Args:
        records: new ones, in order.
        cursor: where to continue, in the form that the source expects.
        lost: records known to have been overwritten before they could be read.
        complete: True if none was left for the next reading, which therefore returns only records
            that are written after this one.
    """

    records: Sequence[Record]
    cursor: dict[str, int]
    lost: int
    complete: bool = False
