"""Reads /dev/kmsg: sequence numbers ensure that no record is read twice or missed.

Opening it requires CAP_SYSLOG (kernel.dmesg_restrict) and the device itself, which only privileged
containers have. Reading changes nothing; the agent never writes to it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from rankscope_agent.sources.kernel_log.records import Batch, Record, parse_kmsg

READ_BYTES = 16 << 10
"""Larger than any record: the kernel's text and keys end at 8 KiB; smaller buffers cause EINVAL."""

MAX_RECORDS = 20_000
"""Records read in one go: a full ring of a megabyte has some 10,000."""


def open_kmsg(path: Path) -> int:
    """Return a descriptor of the device, positioned at its oldest record.

    Raises:
        OSError: it does not exist or may not be read.
    """
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


class KmsgSource:
    """The ring buffer, read through an open descriptor; each read returns one record.

    Args:
        descriptor: as returned by `open_kmsg`; closed if it cannot be read.
        read: os.read or a substitute.

    Raises:
        OSError: the device may be opened, but not read.
    """

    name = "kmsg"

    def __init__(self, descriptor: int, read: Callable[[int, int], bytes] = os.read) -> None:
        self._descriptor = descriptor
        self._read_once = read
        try:
            self._peeked = self._read()
        except OSError:
            self.close()
            raise

    def read(self, cursor: Mapping[str, int]) -> Batch:
        """Return the records after the cursor's sequence number.

        Raises:
            OSError: the device fails.
        """
        last = cursor.get("sequence", -1)
        found: list[Record] = []
        lost = 0
        data, self._peeked = self._peeked or self._read(), b""
        while data:
            record = parse_kmsg(data)
            if record is not None and record.position > last:
                lost += max(0, record.position - last - 1) if last >= 0 else 0
                last = record.position
                found.append(record)
                if len(found) >= MAX_RECORDS:
                    break
            data = self._read()
        return Batch(found, {"sequence": last}, lost, complete=not data)

    def close(self) -> None:
        """Close the device."""
        os.close(self._descriptor)

    def _read(self) -> bytes:
        """Return the next record; empty at the end of the ring.

        EPIPE means that records were overwritten: the next read returns the oldest remaining one,
        and the gap in the sequence numbers shows how many are gone.
        """
        data = self._read_unless_overrun()
        while data is None:
            data = self._read_unless_overrun()
        return data

    def _read_unless_overrun(self) -> bytes | None:
        try:
            return self._read_once(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            return None
