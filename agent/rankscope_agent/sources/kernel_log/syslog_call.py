"""Reads the kernel's ring buffer by syslog(2): needs CAP_SYSLOG but no device, and removes nothing.

Its records have no sequence numbers, so new ones are recognised by their time stamps, and of those
with the same time stamp, by their number.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

from rankscope_agent.sources.kernel_log.records import Batch, Record, parse_klog

READ_ALL = 3  # SYSLOG_ACTION_READ_ALL of include/linux/syslog.h
SIZE_BUFFER = 10  # SYSLOG_ACTION_SIZE_BUFFER

MAX_RING_BYTES = 32 << 20
"""Largest ring that is read: log_buf_len is 128 KiB to some megabytes on large machines."""

Call = Callable[[int, int], bytes]
"""klogctl(3): takes an action and the size of a buffer; returns what was written to it."""


def klogctl(action: int, size: int) -> bytes:
    """Make the call of the C library.

    Raises:
        OSError: the caller has no CAP_SYSLOG, or seccomp forbids it.
    """
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(max(1, size))
    written = library.klogctl(action, buffer, size)
    if written < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if action == SIZE_BUFFER:
        return str(written).encode()
    return buffer.raw[:written]


class SyslogCallSource:
    """The ring buffer, read in full each time.

    Args:
        call: klogctl or a substitute.

    Raises:
        OSError: the ring may not be read.
    """

    name = "syslog"

    def __init__(self, call: Call = klogctl) -> None:
        self._call = call
        self._size = min(int(call(SIZE_BUFFER, 0)), MAX_RING_BYTES)
        self._call(READ_ALL, 1)

    def read(self, cursor: Mapping[str, int]) -> Batch:
        """Return the records after the cursor's time stamp, and further ones with the same stamp.

        Raises:
            OSError: the call fails.
        """
        last, taken = cursor.get("microseconds", -1), cursor.get("taken", 0)
        found: list[Record] = []
        same = 0
        oldest: int | None = None
        for record in parse_klog(self._call(READ_ALL, self._size)):
            oldest = record.position if oldest is None else oldest
            if record.position < last:
                continue
            if record.position == last:
                same += 1
                if same <= taken:
                    continue
            else:
                last, taken, same = record.position, 0, 1
            taken = same
            found.append(record)
        lost = _lost(oldest, cursor.get("microseconds"))
        return Batch(found, {"microseconds": last, "taken": taken}, lost, complete=True)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _lost(oldest: int | None, last: int | None) -> int:
    """Return 1 if the ring has wrapped since the last reading: at least one record is gone."""
    return int(oldest is not None and last is not None and oldest > last)
