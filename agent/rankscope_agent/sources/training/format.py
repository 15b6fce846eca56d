"""The layout of ring files, version 1: bytes in, values out, no I/O.

A probe writes one ring per training process; its module docstring documents the layout. A process
that may write to a ring directory can write anything there, so nothing read here is believed before
it has been checked: each refusal carries one of the few `REASONS`.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Literal, NamedTuple, get_args

from rankscope_agent.contract.model import FLAG_CPU_WAIT, FLAG_SAMPLED

Reason = Literal[
    "too_small",
    "truncated",
    "magic",
    "byte_order",
    "version",
    "geometry",
    "identity",
    "pod_unknown",
    "symlink",
    "not_regular",
    "permission",
    "unreadable",
    "too_many",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why a file is refused; the label values of `rankscope_training_rings_rejected`."""

PASSING_REASONS: frozenset[Reason] = frozenset(
    {"pod_unknown", "permission", "unreadable", "too_many"}
)
"""Refusals that may end without a change of the file; the others last as long as it is
unchanged."""

MAGIC = b"RKSCRING"
VERSION = 1
HEADER_SIZE = 4096
RECORD_SIZE = 64
BYTE_ORDER_MARK = 0x01020304
_SWAPPED_BYTE_ORDER_MARK = 0x04030201

MAX_CAPACITY = 65_536
"""Records in the largest ring of version 1, 4 MiB. Every probe creates one of this size at its
first step; the one that shows its process until then has 64."""

MAX_RANK = 1_048_575
"""Largest rank accepted: 64 times the 16,384 ranks that Rankscope is built for."""

MAX_PID = 1 << 22
"""Largest process id in Linux (PID_MAX_LIMIT, include/linux/threads.h)."""

MAX_UNIX_NS = 4_102_444_800 * 10**9
"""Start of the year 2100; later times are rejected."""

MAX_STEP_NS = 7 * 86_400 * 10**9
"""A week: no optimizer step lasts that long, and sums of such steps stay exact in a counter."""

MAX_SEQ = 1 << 48
"""Largest record number accepted: 8,900 years of a step per millisecond. Otherwise bytes that are
all ones would pass as a record of their slot."""

UNKNOWN_SAMPLES = 0xFFFFFFFF
NOT_MEASURED = -1
TIMING_SOURCES = ("none", "kernel", "wall", "host")
TIMING_MASK = 0b11
SAMPLED = "sampled"

_HEADER = struct.Struct("<8sHHIIIqIIQiiii320s256s32s64s16s32sIIII16s")
_RECORD = struct.Struct("<QqqqqqIIHHI")
_SEQ_AND_CHECK = struct.Struct("<Q52xI")
CHECK_MASK = 0xFFFFFFFF

# The probe replaces characters outside of this set; a label needs no others.
_NAME = re.compile(r"[A-Za-z0-9._/:@-]*")
_VERSION_NAME = re.compile(r"[A-Za-z0-9._+-]*")


class RingError(Exception):
    """A file is refused as a ring; `reason` is one of `REASONS`, the text says what was seen."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason

    def without_frames(self) -> RingError:
        """Return an equal refusal that is safe to keep.

        One that was raised references the frames that it passed, with all their variables: those of
        a scan contain the refusals of the previous scan, which reference the frames of that one.
        """
        return RingError(self.reason, str(self))


@dataclass(frozen=True, slots=True)
class RingHeader:
    """The writer and the size of a ring; None stands for unknown, empty for not given.

    `dp_group`, `tp_group` and `pp_stage` are numbered as in the trace contract, and known all or
    none: rings of older probes have zeros there. A job of several replica groups numbers ranks, and
    counts `world_size`, over all of them. `gpu_uuid` is that of the GPU that trains, without the
    prefix that tells whole GPUs from MIG devices.
    """

    capacity: int
    created_unix_ns: int
    pid: int
    attempt: int
    process_start_ticks: int
    rank: int
    local_rank: int | None
    world_size: int | None
    local_world_size: int | None
    job_id: str
    node: str
    launcher: str
    pod_uid: str
    probe_version: str
    torch_version: str
    dp_group: int | None
    tp_group: int | None
    pp_stage: int | None
    replica_groups: int
    gpu_uuid: str

    @property
    def file_size(self) -> int:
        """Size of the whole file in bytes."""
        return HEADER_SIZE + self.capacity * RECORD_SIZE


class StepRecord(NamedTuple):
    """One record of the ring; durations in nanoseconds, `NOT_MEASURED` if unknown.

    The last eight come from the ring's extension. If `other_ns`, which includes optimizer,
    evaluation, checkpoints and logging, is known, `compute_ns` excludes it.
    """

    seq: int
    start_unix_ns: int
    step_ns: int
    data_ns: int
    compute_ns: int
    sync_ns: int
    step: int
    samples: int
    flags: int
    attempt: int
    check: int
    other_ns: int = NOT_MEASURED
    waited_ns: int = NOT_MEASURED
    microbatches: int | None = None
    checkpoint_ns: int = NOT_MEASURED
    evaluation_ns: int = NOT_MEASURED
    copies_ns: int = NOT_MEASURED
    host_late_ns: int = NOT_MEASURED
    loader_ns: int = NOT_MEASURED

    @property
    def timing_source(self) -> str:
        """How compute and sync were distinguished; `none` between samples too."""
        source = TIMING_SOURCES[self.flags & TIMING_MASK]
        return SAMPLED if source != "none" and self.sampled else source

    @property
    def sampled(self) -> bool:
        """Whether its process measures compute and sync only in some of its steps."""
        return bool(self.flags & FLAG_SAMPLED)

    @property
    def cpu_wait_ns(self) -> int:
        """Return how long the training thread was runnable outside of collectives without running.

        This is what the other parts leave of the step, if the probe counted it.
        """
        if self.waited_ns != NOT_MEASURED:
            return self.waited_ns
        if not self.flags & FLAG_CPU_WAIT or self.compute_ns < 0 or self.sync_ns < 0:
            return NOT_MEASURED
        parts = max(self.data_ns, 0) + self.compute_ns + self.sync_ns + max(self.other_ns, 0)
        return max(self.step_ns - parts, 0)


def parse_header(page: bytes) -> RingHeader:
    """Read the first page of a ring.

    Raises:
        RingError: the page is not the header of a version 1 ring, or a field is out of range.
    """
    if len(page) < HEADER_SIZE:
        raise RingError("too_small", f"{len(page)} bytes, a header has {HEADER_SIZE}")
    fields = _HEADER.unpack_from(page)
    magic, version, header_size, mark, record_size, capacity = fields[:6]
    if magic != MAGIC:
        raise RingError("magic", f"begins with {magic!r}, a ring with {MAGIC!r}")
    _check_layout(version, mark)
    if header_size != HEADER_SIZE or record_size != RECORD_SIZE:
        raise RingError(
            "geometry",
            f"header of {header_size} and records of {record_size} bytes,"
            f" expected {HEADER_SIZE} and {RECORD_SIZE}",
        )
    if not 1 <= capacity <= MAX_CAPACITY:
        raise RingError("geometry", f"{capacity} records, expected 1 to {MAX_CAPACITY}")
    return _identify(capacity, *fields[6:])


def _check_layout(version: int, mark: int) -> None:
    """Reject what this reader cannot decode, foreign byte order first because it garbles the rest.

    Raises:
        RingError: byte order or version differs.
    """
    if mark == _SWAPPED_BYTE_ORDER_MARK:
        raise RingError("byte_order", "written big-endian; rings are little-endian everywhere")
    if mark != BYTE_ORDER_MARK:
        raise RingError("byte_order", f"byte order mark {mark:#010x}, not {BYTE_ORDER_MARK:#010x}")
    if version != VERSION:
        advice = "; the agent is older than the probe, update it" if version > VERSION else ""
        raise RingError("version", f"version {version}, this agent reads {VERSION}{advice}")


def _identify(
    capacity: int,
    created_unix_ns: int,
    pid: int,
    attempt: int,
    process_start_ticks: int,
    rank: int,
    local_rank: int,
    world_size: int,
    local_world_size: int,
    *rest: Any,
) -> RingHeader:
    """Check the writer's identity.

    Raises:
        RingError: with reason identity, for the first field that is out of range.
    """
    _check_range("creation time", created_unix_ns, 1, MAX_UNIX_NS)
    _check_range("pid", pid, 1, MAX_PID)
    _check_range("rank", rank, 0, MAX_RANK)
    job_id, node, launcher, pod_uid, probe_version, torch_version, *layout, groups, gpu = rest
    _check_range("number of replica groups", groups, 0, MAX_RANK + 1)
    dp_group, tp_group, pp_stage = _layout(layout)
    return RingHeader(
        capacity=capacity,
        created_unix_ns=created_unix_ns,
        pid=pid,
        attempt=attempt,
        process_start_ticks=process_start_ticks,
        rank=rank,
        local_rank=_optional("local rank", local_rank, 0, MAX_RANK),
        world_size=_optional("world size", world_size, 1, MAX_RANK + 1),
        local_world_size=_optional("local world size", local_world_size, 1, MAX_RANK + 1),
        job_id=_text("job id", job_id, _NAME, required=True),
        node=_text("node", node, _NAME),
        launcher=_text("launcher", launcher, _NAME),
        pod_uid=_text("pod uid", pod_uid, _NAME),
        probe_version=_text("probe version", probe_version, _VERSION_NAME),
        torch_version=_text("torch version", torch_version, _VERSION_NAME),
        dp_group=dp_group,
        tp_group=tp_group,
        pp_stage=pp_stage,
        replica_groups=max(1, groups),
        gpu_uuid=str(uuid.UUID(bytes=gpu)) if any(gpu) else "",
    )


def _layout(fields: Sequence[int]) -> Sequence[int | None]:
    """Read a rank's two groups and its stage, which are stored plus 1."""
    if not any(fields):
        return (None,) * len(fields)
    for name, field in zip(("dp_group", "tp_group", "pp_stage"), fields, strict=True):
        _check_range(name, field - 1, 0, MAX_RANK)
    return [field - 1 for field in fields]


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise RingError("identity", f"{name} {value}, expected {low} to {high}")


def _optional(name: str, value: int, low: int, high: int) -> int | None:
    if value == -1:
        return None
    _check_range(name, value, low, high)
    return value


def _text(name: str, field: bytes, allowed: re.Pattern[str], *, required: bool = False) -> str:
    """Read a NUL-padded text of allowed characters."""
    text = field.rstrip(b"\0").decode("ascii", "replace")
    if not allowed.fullmatch(text):
        raise RingError("identity", f"{name} {text!r}, expected only {allowed.pattern}")
    if required and not text:
        raise RingError("identity", f"{name} is empty")
    return text


RunEnd = Literal["end", "head", "overrun", "gap"]


class Run(NamedTuple):
    """The contents of consecutive slots, up to the first one that is not next.

    Args:
        records: the plausible ones, in order.
        taken: number of slots used, whether plausible or not.
        corrupt: number of slots used that contradict themselves.
        stopped_by: "end" of the slots; "head", the next record has not been written yet; "overrun",
            the next one has been overwritten; "gap", it cannot be read but a later one can.
        seq: after an overrun or a gap, the number of the first later record that can be read.
    """

    records: list[StepRecord]
    taken: int
    corrupt: int
    stopped_by: RunEnd
    seq: int


def parse_run(stretch: bytes, first_seq: int, capacity: int) -> Run:
    """Read consecutive records.

    Args:
        stretch: slots from that of `first_seq` on; an incomplete one at the end is ignored.
        first_seq: number of the next record.
        capacity: records in the ring.
    """
    records = []
    seq = first_seq
    whole = memoryview(stretch)[: len(stretch) // RECORD_SIZE * RECORD_SIZE]
    for record in starmap(StepRecord, _RECORD.iter_unpack(whole)):
        if record.seq != seq or record.check != seq & CHECK_MASK:
            break
        if is_plausible(record):
            records.append(record)
        seq += 1
    taken = seq - first_seq
    stopped_by, found = _look_ahead(whole[taken * RECORD_SIZE :], seq, capacity)
    return Run(records, taken, taken - len(records), stopped_by, found)


def _look_ahead(stretch: memoryview, seq: int, capacity: int) -> tuple[RunEnd, int]:
    """Return why the record `seq` is not in the first slot."""
    if not stretch:
        return "end", seq
    for ahead, (found, check) in enumerate(_SEQ_AND_CHECK.iter_unpack(stretch)):
        if check != found & CHECK_MASK or found > MAX_SEQ:
            continue
        newer = found - (seq + ahead)
        if newer >= 0 and newer % capacity == 0:
            return ("overrun" if newer else "gap"), found
    return "head", seq


def seq_in_slot(stretch: bytes, slot: int, capacity: int) -> int:
    """Return the number of the record in a slot; 0 without a complete record of that slot."""
    if len(stretch) < RECORD_SIZE:
        return 0
    seq, check = _SEQ_AND_CHECK.unpack_from(stretch)
    fits = 0 < seq <= MAX_SEQ and (seq - 1) % capacity == slot and check == seq & CHECK_MASK
    return int(seq) if fits else 0


def is_plausible(record: StepRecord) -> bool:
    """Return True if a record's times are plausible: no part of a step exceeds the step."""
    longest = record.step_ns
    return (
        0 <= longest <= MAX_STEP_NS
        and 0 < record.start_unix_ns <= MAX_UNIX_NS
        and NOT_MEASURED <= record.data_ns <= longest
        and NOT_MEASURED <= record.compute_ns <= longest
        and NOT_MEASURED <= record.sync_ns <= longest
    )
