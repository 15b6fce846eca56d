"""Files that training processes write for the agent: rings and related files."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence

from benchmarks.fuzzing.target import Target, promise, stored

from rankscope_agent.contract.model import SPAN_KINDS
from rankscope_agent.sources.training import companion_file, extension, reported, spans
from rankscope_agent.sources.training import format as form
from rankscope_agent.sources.training.cursor import locate
from rankscope_agent.sources.training.format import MAX_STEP_NS, NOT_MEASURED, RingError
from ring_writer import (
    HEADER_FIELDS,
    NS,
    SPAN,
    extension_bytes,
    extension_header,
    header_page,
    record_bytes,
)

HEADER_SIZE, RECORD_SIZE = form.HEADER_SIZE, form.RECORD_SIZE
SLOTS = 16
SIGNAL = struct.Struct("<QqdqII24x")


def _header(data: bytes) -> None:
    found = form.parse_header(data.ljust(HEADER_SIZE, b"\0"))
    promise(1 <= found.capacity <= form.MAX_CAPACITY, "a capacity that no ring has")
    promise(found.job_id and found.job_id.isprintable(), "a job id that is no label")
    promise(found.world_size is None or found.world_size > 0, "a world of no ranks")


def _header_seeds() -> Sequence[bytes]:
    used = form._HEADER.size
    return [
        header_page()[:used],
        header_page(local_rank=-1, world_size=-1, dp_group=1, tp_group=2, pp_stage=1)[:used],
        header_page(replica_groups=2, pod_uid="0f9d2c1e-7a51")[:used],
    ]


def _records(data: bytes) -> None:
    """Read slots like the agent; the first two bytes give the number of the next record."""
    first = int.from_bytes(data[:2], "little") + 1
    run = form.parse_run(data[2:], first, SLOTS)
    promise(0 <= run.corrupt <= run.taken <= len(data) // RECORD_SIZE, "more slots than there are")
    for one in run.records:
        promise(NOT_MEASURED <= one.compute_ns <= one.step_ns <= MAX_STEP_NS, "an endless step")
        promise(one.timing_source and one.cpu_wait_ns <= one.step_ns, "a wait longer than its step")
    form.seq_in_slot(data[2:], 0, SLOTS)


def _record_seeds() -> Sequence[bytes]:
    three = b"".join(record_bytes(seq) for seq in (1, 2, 3))
    late = record_bytes(1) + record_bytes(2 + SLOTS)
    return [b"\0\0" + three, b"\0\0" + late, b"\x05\0" + record_bytes(6) + bytes(RECORD_SIZE)]


def _ring_file(data: bytes) -> None:
    """Find the location in a whole file, which may be shorter than it claims."""
    with stored(data, "1-1.ring") as path:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            found = form.parse_header(os.pread(descriptor, HEADER_SIZE, 0))
            locate(descriptor, found.capacity)
        finally:
            os.close(descriptor)


def _ring_file_seeds() -> Sequence[bytes]:
    written = b"".join(map(record_bytes, range(1, 6)))
    return [header_page() + written.ljust(SLOTS * RECORD_SIZE, b"\0")]


def _extension(data: bytes) -> None:
    record = form.parse_run(record_bytes(1), 1, SLOTS).records[0]
    for slot in range(0, len(data) - extension._SLOT.size + 1, 64):
        read = extension.Extension._make(extension._SLOT.unpack_from(data, slot))
        found = extension.extended(record, read)
        promise(found.compute_ns <= record.compute_ns, "more compute than without it")
        promise(found.loader_ns == NOT_MEASURED or found.loader_ns >= 0, "a negative loader")


def _companion(data: bytes) -> None:
    ring = form.parse_header(header_page())
    companion_file.check_companion(data[:64], len(data), ring, b"RKSCEXTN", SLOTS)


def _spans(data: bytes) -> None:
    for one in spans.parse_spans(data):
        promise(one.kind_name in SPAN_KINDS, "a kind of span that has no name")
        promise(one.end_unix_ns >= one.start_unix_ns, "a span that ends before it begins")


def _span_seeds() -> Sequence[bytes]:
    created = HEADER_FIELDS["created_unix_ns"]
    one = SPAN.pack(1, created + NS, NS, NS // 2, 1 << 20, 7, 1, 0, 1, 1, 0, 0, 5)
    open_ = SPAN.pack(2, created + NS, -1, -1, -1, 7, 1, 0, 1, 0, 0, 0, 8)
    return [one + open_]


def _signals(data: bytes) -> None:
    for signal, reading in reported.parse_signals(data).items():
        finite = math.isfinite(reading.value) or signal is reported.Signal.LOSS
        promise(finite and reading.unix_ns > 0, "a value that cannot be")


def _signal_seeds() -> Sequence[bytes]:
    created = HEADER_FIELDS["created_unix_ns"]
    values = [2.5, 100.0, 0.0, 2.4, 1e-4, 0.0, 1e9]
    rows = [SIGNAL.pack(3, created, v, 7, n, 3 + n) for n, v in enumerate(values, 1)]
    return [b"".join(rows)]


TARGETS = (
    Target("ring header", _header, _header_seeds, (RingError,)),
    Target("ring records", _records, _record_seeds),
    Target("ring file", _ring_file, _ring_file_seeds, (RingError,), runs=20_000),
    Target("ring extension", _extension, lambda: [extension_bytes(1) + extension_bytes(2)]),
    Target(
        "files beside rings",
        _companion,
        lambda: [extension_header() + bytes(SLOTS * 64), extension_header()],
        (RingError,),
    ),
    Target("spans", _spans, _span_seeds),
    Target("reported values", _signals, _signal_seeds),
)
