"""Writes rings as a probe does, and broken ones as it never would; shares no code with either."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Any

HEADER = struct.Struct("<8sHHIIIqIIQiiii320s256s32s64s16s32sIIII16s")
RECORD = struct.Struct("<QqqqqqIIHHI")
PAGE = 4096
NS = 10**9

HEADER_FIELDS: dict[str, Any] = {
    "magic": b"RKSCRING",
    "version": 1,
    "header_size": PAGE,
    "byte_order_mark": 0x01020304,
    "record_size": 64,
    "capacity": 16,
    "created_unix_ns": 1_700_000_000 * NS,
    "pid": 4242,
    "attempt": 0,
    "process_start_ticks": 99,
    "rank": 0,
    "local_rank": 0,
    "world_size": 4,
    "local_world_size": 4,
    "job_id": "team/job",
    "node": "gpu-07",
    "launcher": "torchrun",
    "pod_uid": "",
    "probe_version": "0.1.0",
    "torch_version": "2.13.0+cpu",
    "dp_group": 0,
    "tp_group": 0,
    "pp_stage": 0,
    "replica_groups": 0,
    "gpu": b"",
}


def header_page(**changes: Any) -> bytes:
    """Return a header of 4096 bytes, valid but for the changes; texts may be given as bytes."""
    fields = {**HEADER_FIELDS, **changes}
    assert set(fields) == set(HEADER_FIELDS), changes
    values = [v.encode() if isinstance(v, str) else v for v in fields.values()]
    return HEADER.pack(*values).ljust(PAGE, b"\0")


def record_bytes(
    seq: int,
    *,
    start_unix_ns: int | None = None,
    step_ns: int = 100_000_000,
    data_ns: int = 10_000_000,
    compute_ns: int = 60_000_000,
    sync_ns: int = 30_000_000,
    step: int | None = None,
    samples: int = 8,
    flags: int = 2,
    attempt: int = 0,
    check: int | None = None,
) -> bytes:
    """Return a record of 64 bytes; step `seq` of 0.1 s began that many tenths after creation."""
    begin_ns = HEADER_FIELDS["created_unix_ns"] + seq % 10**9 * 100_000_000
    return RECORD.pack(
        seq,
        begin_ns if start_unix_ns is None else start_unix_ns,
        step_ns,
        data_ns,
        compute_ns,
        sync_ns,
        (seq - 1) % 2**32 if step is None else step,
        samples,
        flags,
        attempt,
        seq & 0xFFFFFFFF if check is None else check,
    )


EXTENSION_HEADER = struct.Struct("<8sHHIIqI32x")
EXTENSION = struct.Struct("<QqqqqqqHeI")


def extension_header(capacity: int = 16, **fields: Any) -> bytes:
    """Return the first slot of an extension: of the ring that `header_page` makes."""
    of_ring = {name: HEADER_FIELDS[name] for name in ("created_unix_ns", "pid")}
    own = {"magic": b"RKSCEXTN", "version": 1, "slot_size": 64, "mark": 0x01020304}
    return EXTENSION_HEADER.pack(*{**own, "capacity": capacity, **of_ring, **fields}.values())


def extension_bytes(
    seq: int,
    *,
    other_ns: int = 20_000_000,
    cpu_wait_ns: int = -1,
    microbatches: int = 1,
    loader_ms: float = 0.0,
    check: int | None = None,
) -> bytes:
    """Return a slot of 64 bytes."""
    times = (other_ns, cpu_wait_ns, -1, -1, -1, -1)
    return EXTENSION.pack(
        seq, *times, microbatches, loader_ms, seq & 0xFFFFFFFF if check is None else check
    )


class ExtensionWriter:
    """The extension beside a ring, as a newer probe makes it before the ring gets its name."""

    def __init__(self, directory: Path, name: str = "4242-99.ext", **header: Any) -> None:
        self.path = directory / name
        self.capacity = header.get("capacity", HEADER_FIELDS["capacity"])
        self.path.write_bytes(extension_header(**header) + bytes(64 * self.capacity))

    def write(self, seq: int, **fields: Any) -> None:
        """Write the slot of record `seq`."""
        with self.path.open("r+b") as file:
            file.seek(64 * (1 + (seq - 1) % self.capacity))
            file.write(extension_bytes(seq, **fields))


SPAN = struct.Struct("<QqqqqIIHBBIII")
SPANS = 1024


class SpanWriter:
    """The spans beside a ring, as a newer probe marks them."""

    def __init__(self, directory: Path, name: str = "4242-99.span", **header: Any) -> None:
        self.path = directory / name
        words = {"magic": b"RKSCSPAN", "capacity": SPANS, **header}
        self.path.write_bytes(extension_header(**words) + bytes(64 * SPANS))

    def write(
        self,
        seq: int,
        kind: int = 1,
        *,
        start_ns: int,
        duration_ns: int = -1,
        outcome: int = 0,
        flags: int = 0,
        size: int = -1,
        target: int = 0,
        step: int = 7,
    ) -> None:
        """Write a slot: an open span, or with an outcome (1 done, 2 failed) how it ended."""
        check = 4 * seq + outcome & 0xFFFFFFFF
        times = (start_ns, duration_ns, duration_ns, size)
        slot = SPAN.pack(seq, *times, step, target, flags, kind, outcome, 0, 0, check)
        with self.path.open("r+b") as file:
            file.seek(64 * (1 + (seq - 1) % SPANS))
            file.write(slot)


SIGNAL = struct.Struct("<QqdqII24x")
SIGNALS = 32


class SignalWriter:
    """The signals beside a ring, as a newer probe writes them."""

    def __init__(self, directory: Path, name: str = "4242-99.sig", **header: Any) -> None:
        self.path = directory / name
        words = {"magic": b"RKSCSIGN", "capacity": SIGNALS, **header}
        self.path.write_bytes(extension_header(**words) + bytes(64 * SIGNALS))
        self.seq = 0

    def write(self, values: dict[int, float], step: int = 7, unix_ns: int = 0) -> None:
        """Write the table: values by their kind, all others unknown; as of the ring's begin."""
        at = unix_ns or HEADER_FIELDS["created_unix_ns"]
        self.seq += 1
        table = bytearray(64 * SIGNALS)
        for kind, value in values.items():
            words = (self.seq, at, value, step, kind, self.seq + kind)
            SIGNAL.pack_into(table, 64 * (kind - 1), *words)
        with self.path.open("r+b") as file:
            file.seek(64)
            file.write(table)


class RingWriter:
    """A ring and its living process: holds the lock until `end`, writes a record per `step`."""

    def __init__(self, directory: Path, name: str = "4242-99.ring", **header: Any) -> None:
        self.path = directory / name
        self.capacity = header.get("capacity", HEADER_FIELDS["capacity"])
        self.seq = 0
        temporary = directory / f".{name}"
        self.descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.posix_fallocate(self.descriptor, 0, PAGE + self.capacity * RECORD.size)
        os.pwrite(self.descriptor, header_page(**header), 0)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary.rename(self.path)

    def step(self, count: int = 1, **fields: Any) -> None:
        """Write the next records."""
        for _ in range(count):
            self.seq += 1
            self.write_slot(self.seq, record_bytes(self.seq, **fields))

    def write_slot(self, seq: int, data: bytes) -> None:
        """Put any bytes where record `seq` belongs."""
        os.pwrite(self.descriptor, data, PAGE + (seq - 1) % self.capacity * RECORD.size)

    def end(self) -> None:
        """End the process: its lock goes, its file stays."""
        os.close(self.descriptor)
