"""Writes a simulated job as the rings that the probes in its ranks would have left.

A ring holds wall-clock times of a job that runs now, so every time is moved: the job's last step
has just ended. A rank that never reports has no ring, and a step without a report no record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import pandas as pd
from benchmarks.ring_writer import CAPACITY, HEADER, HEADER_SIZE, RECORD
from benchmarks.straggler_suite.job import Job
from benchmarks.straggler_suite.plan import GPUS_PER_NODE

NS = 1e9
TIMING_FLAGS = {"kernel": 1, "wall": 2, "blocked": 2}
FIRST_FLAG, CPU_WAIT_FLAG = 32, 64
SAMPLES = 16
"""Samples that every rank reads in every step; sequences differ in length, not in number."""

SLOT = np.dtype([
    ("seq", "<u8"), ("start", "<i8"), ("lasted", "<i8"), ("data", "<i8"), ("compute", "<i8"),
    ("sync", "<i8"), ("step", "<u4"), ("samples", "<u4"), ("flags", "<u2"), ("attempt", "<u2"),
    ("check", "<u4"),
])  # fmt: skip
"""A record of a ring as a numpy dtype; `RECORD` is the same."""

EXTENSION = np.dtype([
    ("seq", "<u8"), ("other", "<i8"), ("cpu_wait", "<i8"), ("checkpoint", "<i8"),
    ("evaluation", "<i8"), ("copies", "<i8"), ("host_late", "<i8"), ("microbatches", "<u2"),
    ("reserved", "<u2"), ("check", "<u4"),
])  # fmt: skip
"""A slot of the file next to a ring, in which newer probes record more about each step."""

EXTENSION_HEADER = struct.Struct("<8sHHIIqI32x")
NOT_MEASURED = -1


class RingHeader(TypedDict):
    """The first fields of a ring, all but those that only the file has."""

    created: int
    attempt: int
    rank: int
    local_rank: int
    world: int
    local_world: int
    job: bytes
    node: bytes
    groups: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class RankRing:
    """What one process of a job wrote.

    Args:
        node: the node it ran on.
        header: the first fields of the ring.
        records: its records, consecutive.
        extension: what newer probes add to each; empty for an older one.
        ended: True if its process is gone, so that nobody holds the ring's lock.
    """

    node: str
    header: RingHeader
    records: bytes
    extension: bytes
    ended: bool


def job_id(made: Job) -> str:
    """Return the name of a job in its rings."""
    return f"suite/{made.meta['job']}"


def rank_rings(made: Job, shift: float, extended: bool = True) -> list[RankRing]:
    """Return the rings of a job, those of its first processes first.

    Args:
        made: the job.
        shift: seconds that all its times are moved by.
        extended: True if the probe records the rest of a step and its micro-batches separately.
    """
    starts = np.array([attempt.begin_unix_seconds for attempt in made.attempts])
    begun = made.records["t_start_unix_seconds"].to_numpy()
    attempts = np.searchsorted(starts, begun + 1.0) - 1  # clocks are less than a second apart
    ordered = made.records.assign(attempt=attempts).sort_values("t_start_unix_seconds")
    return [
        _ring(made, rows, int(rows["attempt"].iloc[0]), shift, extended)
        for _, rows in ordered.groupby(["attempt", "rank"], sort=True)
    ]


def _ring(made: Job, rows: pd.DataFrame, attempt: int, shift: float, extended: bool) -> RankRing:
    begin, world = made.attempts[attempt].begin_unix_seconds, made.attempts[attempt].world_size
    first = rows.iloc[0]
    node = f"{made.meta['job']}-{first['node']}"
    header: RingHeader = {
        "created": int((begin + shift) * NS),
        "attempt": attempt,
        "rank": int(first["rank"]),
        "local_rank": int(first["gpu"]),
        "world": world,
        "local_world": min(world, GPUS_PER_NODE),
        "job": job_id(made).encode(),
        "node": node.encode(),
        "groups": (
            int(first["dp_group"]) + 1,
            int(first["tp_group"]) + 1,
            int(first["pp_stage"]) + 1,
        ),
    }
    slots = _slots(rows, made.labels["timing"], attempt, shift, extended)
    more = _extension(rows, slots, made).tobytes() if extended else b""
    return RankRing(node, header, slots.tobytes(), more, attempt + 1 < len(made.attempts))


def _slots(
    rows: pd.DataFrame, timing: str, attempt: int, shift: float, extended: bool
) -> np.ndarray:
    """Return the records of a process.

    A probe's compute is all that is neither input nor waiting. If an extension states how much of
    that is not computing, readers subtract it; without one, kernel timing has to do it here.
    """
    slots = np.zeros(len(rows), dtype=SLOT)
    slots["seq"] = slots["check"] = np.arange(1, len(rows) + 1)
    slots["start"] = _ns(rows["t_start_unix_seconds"] + shift)
    for field, column in (("lasted", "step"), ("data", "data"), ("sync", "sync")):
        slots[field] = _ns(rows[f"{column}_seconds"])
    if timing == "kernel" and not extended:
        slots["compute"] = _ns(rows["compute_seconds"])
    else:
        slots["compute"] = np.maximum(slots["lasted"] - slots["data"] - slots["sync"], 0)
    slots["step"], slots["samples"], slots["attempt"] = rows["step"], SAMPLES, attempt
    slots["flags"] = TIMING_FLAGS[timing] | (0 if timing == "kernel" else CPU_WAIT_FLAG)
    slots["flags"][0] |= FIRST_FLAG
    return slots


def _extension(rows: pd.DataFrame, slots: np.ndarray, made: Job) -> np.ndarray:
    """Return what newer probes record in addition to the records of a process.

    Waits for a CPU are zero if timed by the clock, and unknown if only kernels are timed.
    """
    timing = made.labels["timing"]
    more = np.zeros(len(slots), dtype=EXTENSION)
    more["seq"], more["check"] = slots["seq"], slots["check"]
    more["other"] = np.maximum(slots["compute"] - _ns(rows["compute_seconds"]), 0)
    more["cpu_wait"] = NOT_MEASURED if timing == "kernel" else 0
    for name in ("checkpoint", "evaluation", "copies", "host_late"):
        more[name] = NOT_MEASURED
    more["microbatches"] = made.meta["microbatches"]
    return more


def _ns(seconds: pd.Series) -> np.ndarray:
    return np.round(seconds.to_numpy() * NS).astype(np.int64)


@contextlib.contextmanager
def placed(written: Sequence[tuple[Path, RankRing]]) -> Iterator[None]:
    """Keep rings in their directories, locked by living processes, until the block ends."""
    with contextlib.ExitStack() as held:
        for number, (folder, ring) in enumerate(written):
            descriptor = _write(folder, number, ring)
            if ring.ended:
                os.close(descriptor)
            else:
                held.callback(os.close, descriptor)
        yield


def _write(folder: Path, number: int, ring: RankRing) -> int:
    """Write a ring as large as a probe's, and return it open and locked."""
    pid, fields = 100_000 + number, ring.header
    header = HEADER.pack(
        *(b"RKSCRING", 1, HEADER_SIZE, 0x01020304, RECORD.size, CAPACITY, fields["created"]),
        *(pid, fields["attempt"], number + 1, fields["rank"], fields["local_rank"]),
        *(fields["world"], fields["local_world"], fields["job"], fields["node"]),
        *(b"torchrun", b"", b"0.1.0", b"2.13.0", *fields["groups"]),
    )
    hidden = folder / f".{pid}.ring"
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.truncate(descriptor, HEADER_SIZE + CAPACITY * RECORD.size)
    os.pwrite(descriptor, header, 0)
    os.pwrite(descriptor, ring.records, HEADER_SIZE)
    if ring.extension:
        _write_extension(folder / f"{pid}-1.ext", pid, ring)
    hidden.rename(folder / f"{pid}-1.ring")
    return descriptor


def _write_extension(path: Path, pid: int, ring: RankRing) -> None:
    created = ring.header["created"]
    fields = (b"RKSCEXTN", 1, EXTENSION.itemsize, 0x01020304, CAPACITY, created, pid)
    with path.open("wb") as file:
        header = EXTENSION_HEADER.pack(*fields)
        file.write(header + ring.extension)
        file.truncate(EXTENSION.itemsize * (1 + CAPACITY))
