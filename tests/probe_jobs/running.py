"""Run training jobs for the probe's tests and read the rings they leave."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

JOBS = Path(__file__).parent
PROBE = JOBS.parents[1] / "agent" / "probe"
HEADER = struct.Struct("<8sHHIIIqIIQiiii320s256s32s64s16s32sIII")
RECORD = struct.Struct("<QqqqqqIIHHI")
BLOCK = 1 << 15

SCRIPT_SECONDS = 600

# torch 2.13 keeps the launcher's store over a restart, so that gloo may read where the dead
# ranks listened and give up (in 3 of 6 runs): each attempt gets a store of its own.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

WALL, CLOSURE, SKIPPED, EVALUATION, FIRST, CPU_WAIT = 2, 4, 8, 16, 32, 64


@dataclass(frozen=True, slots=True)
class Record:
    """One record, as the ring's layout names its fields; times in nanoseconds."""

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


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring's header fields that tests look at, and its records in order."""

    path: Path
    capacity: int
    pid: int
    attempt: int
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    job_id: str
    node: str
    launcher: str
    pod_uid: str
    torch_version: str
    layout: tuple[int, int, int]
    held: bool
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one process ended: its exit code, negative for a signal, and what it printed.

    Standard error is without the line that torch's worker server writes as it starts; `served` says
    whether it was there.
    """

    code: int
    output: str
    errors: str
    served: bool = False


def environment(ring_dir: Path, extra: dict[str, str]) -> dict[str, str]:
    """Give what a job's processes need: the probe on the path, one thread, loopback only."""
    return {
        **os.environ,
        "PYTHONPATH": str(PROBE),
        "RANKSCOPE_RING_DIR": str(ring_dir),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        **extra,
    }


def start_script(command: Iterable[str], ring_dir: Path, **extra: str) -> subprocess.Popen[str]:
    """Start python with these arguments as a process of its own, and of a session of its own."""
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment(ring_dir, extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_of(process: subprocess.Popen[str]) -> Outcome:
    """Wait for a process that `start_script` started."""
    try:
        output, errors = process.communicate(timeout=SCRIPT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # a launcher's children too
        process.communicate()
        raise
    return outcome(process.returncode, output, errors)


def outcome(code: int, output: str, errors: str) -> Outcome:
    """Say how a process ended, apart from what its worker server writes."""
    lines = errors.splitlines(keepends=True)
    kept = [line for line in lines if "Server listening to UNIX" not in line]
    return Outcome(code, output, "".join(kept), len(kept) < len(lines))


def run_script(command: Iterable[str], ring_dir: Path, **extra: str) -> Outcome:
    """Run python with these arguments as a process of its own."""
    return end_of(start_script(command, ring_dir, **extra))


def text(field: bytes) -> str:
    """Decode a NUL-padded field."""
    return field.rstrip(b"\0").decode()


def is_held(path: Path) -> bool:
    """Tell whether a process still holds the ring's lock."""
    with path.open("rb") as ring:
        try:
            fcntl.flock(ring, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def written(path: Path) -> bytes:
    """Read a file of slots up to its first empty block: slots fill in order, most never do."""
    content = b""
    with path.open("rb") as file:
        while (block := file.read(BLOCK)).rstrip(b"\0"):
            content += block
    return content


def read_ring(path: Path) -> Ring:
    """Read a ring that has not wrapped, checking what every ring promises."""
    content = written(path)
    header = HEADER.unpack_from(content)
    assert header[:5] == (b"RKSCRING", 1, 4096, 0x01020304, 64)
    assert path.stat().st_size == 4096 + 64 * header[5]
    records = tuple(
        Record(*fields) for fields in RECORD.iter_unpack(content[4096:]) if fields[0] != 0
    )
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert all(record.check == record.seq for record in records)
    return Ring(
        path=path,
        capacity=header[5],
        pid=header[7],
        attempt=header[8],
        rank=header[10],
        local_rank=header[11],
        world_size=header[12],
        local_world_size=header[13],
        job_id=text(header[14]),
        node=text(header[15]),
        launcher=text(header[16]),
        pod_uid=text(header[17]),
        torch_version=text(header[19]),
        layout=header[20:],
        held=is_held(path),
        records=records,
    )


def read_rings(directory: Path) -> list[Ring]:
    """Read all rings of a directory, by rank."""
    rings = [read_ring(path) for path in directory.glob("*.ring")]
    return sorted(rings, key=lambda ring: ring.rank)


EXTENSION_HEADER = struct.Struct("<8sHHIIqI32x")
EXTENSION = struct.Struct("<QqqqqqqHHI")


@dataclass(frozen=True, slots=True)
class Extended:
    """A step as newer agents know it; times in nanoseconds, compute without other."""

    step: int
    step_ns: int
    data_ns: int
    compute_ns: int
    sync_ns: int
    other_ns: int
    cpu_wait_ns: int
    checkpoint_ns: int
    evaluation_ns: int
    microbatches: int


def read_extended(directory: Path, rank: int = 0) -> list[Extended]:
    """Read a ring that has not wrapped and its extension, checking what both promise."""
    ring = next(ring for ring in read_rings(directory) if ring.rank == rank)
    content = ring.path.with_suffix(".ext").read_bytes()
    header = EXTENSION_HEADER.unpack_from(content)
    assert header[:5] == (b"RKSCEXTN", 1, 64, 0x01020304, ring.capacity)
    assert header[5:] == (struct.unpack_from("<q", ring.path.read_bytes(), 24)[0], ring.pid)
    assert len(content) == 64 * (1 + ring.capacity)
    slots = EXTENSION.iter_unpack(content[64 : 64 * (1 + len(ring.records))])
    return [extend(record, slot) for record, slot in zip(ring.records, slots, strict=True)]


def extend(record: Record, slot: tuple[int, ...]) -> Extended:
    """Put a record and its extension together."""
    assert (slot[0], slot[9]) == (record.seq, record.check)
    other_ns = slot[1]
    return Extended(
        *(record.step, record.step_ns, record.data_ns),
        *(record.compute_ns - max(other_ns, 0), record.sync_ns),
        *(other_ns, slot[2], slot[3], slot[4], slot[7]),
    )


def read_only_ring(directory: Path) -> Ring:
    """Read the one ring that a directory holds."""
    (ring,) = read_rings(directory)
    return ring


def median_ms(records: Iterable[Record], field: str) -> float:
    """Give the median of a field of nanoseconds, in milliseconds."""
    values: list[int] = [getattr(record, field) for record in records]
    return median(values) / 1e6
