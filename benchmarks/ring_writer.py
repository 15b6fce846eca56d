"""Writes rings like training processes with a probe, as input for an agent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CAPACITY = 65536
HEADER = struct.Struct("<8sHHIIIqIIQiiii320s256s32s64s16s32sIII")
HEADER_SIZE = 4096
RECORD = struct.Struct("<QqqqqqIIHHI")
WALL_TIMING = 2


@dataclass(slots=True)
class Ring:
    """One rank's ring; the lock on the open file shows that its process lives."""

    descriptor: int
    records: int = 0

    def append(self, step_ns: int) -> None:
        """Write the record of a step that has just ended."""
        self.records += 1
        record = RECORD.pack(
            self.records,
            time.time_ns() - step_ns,
            step_ns,
            step_ns // 10,
            step_ns // 2,
            step_ns // 4,
            self.records - 1,
            32,
            WALL_TIMING,
            0,
            self.records & 0xFFFFFFFF,
        )
        slot = (self.records - 1) % CAPACITY
        os.pwrite(self.descriptor, record, HEADER_SIZE + slot * RECORD.size)


def create_ring(folder: Path, rank: int, ranks: int) -> Ring:
    """Create a ring as rank `rank` of `ranks` of one job on this node."""
    pid = 100_000 + rank
    header = HEADER.pack(
        *(b"RKSCRING", 1, HEADER_SIZE, 0x01020304, RECORD.size, CAPACITY, time.time_ns()),
        *(pid, 0, 1, rank, rank, ranks, ranks),
        *(b"research/llama-70b", b"node", b"torchrun", b"", b"0.1.0", b"2.13.0", 0, 0, 0),
    )
    path = folder / f"{pid}-1.ring"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.posix_fallocate(descriptor, 0, HEADER_SIZE + CAPACITY * RECORD.size)
    os.pwrite(descriptor, header, 0)
    return Ring(descriptor)


@contextlib.contextmanager
def training(folder: Path, ranks: int, steps_per_second: float) -> Iterator[None]:
    """Write a record into each of `ranks` rings at a steady pace until the block ends."""
    rings = [create_ring(folder, rank, ranks) for rank in range(ranks)]
    stop = threading.Event()
    pause = 1 / steps_per_second

    def write() -> None:
        while not stop.wait(pause):
            for ring in rings:
                ring.append(int(pause * 1e9))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
        for ring in rings:
            os.close(ring.descriptor)
