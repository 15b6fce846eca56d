"""Parses one line of Inspector's JSON files: pure.

Formats v4.0 to v5.0 (NVIDIA/nccl plugins/profiler/inspector/inspector_json.cc): a header about the
communicator, metadata about the process, and one of coll_perf, p2p_perf or dump_stats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract import untrusted_json

MAX_RANK = 1 << 20
"""Ranks at or above this are garbage: 64 times the largest known jobs (16,384 GPUs)."""

MAX_MICROSECONDS = 86_400_000_000
"""Longest operation accepted: a day."""

MAX_BYTES = 1 << 48
"""Largest message accepted."""

OPERATIONS = frozenset(
    {
        "AllGather",
        "AllReduce",
        "AlltoAll",
        "Broadcast",
        "Gather",
        "Recv",
        "Reduce",
        "ReduceScatter",
        "Scatter",
        "Send",
        "SendRecv",
    }
)
"""Operations by NCCL's own names (src/enqueue.cc ncclFuncToString); all others share `other`."""

TIMING = {"kernel_gpu": "kernel", "kernel_cpu": "kernel", "collective_cpu": "host"}
"""Inspector's timing sources in the terms of docs/timing_sources.md: beginning and end of the
kernel, by the GPU's clock or as seen by the host, or the whole call as seen by the host."""


@dataclass(frozen=True, slots=True)
class Record:
    """One operation of one rank.

    Args:
        rank: rank in its communicator.
        operation: one of `OPERATIONS`, or `other`.
        timing_source: kernel or host.
        seconds: from the beginning of its kernel, which waits for peers, to its end.
        size: bytes of the message.
    """

    rank: int
    nranks: int
    operation: str
    timing_source: str
    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Number of operations of one communicator that Inspector overwrote before writing them."""

    operations: int


def operation(name: object) -> str:
    """Return a name that is usable as a label."""
    return name if isinstance(name, str) and name in OPERATIONS else "other"


def parse(line: bytes) -> Record | Dropped | None:
    """Read a line; return None if it is not Inspector's or implausible."""
    try:
        document = untrusted_json.read(line)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    for kind in ("coll", "p2p"):
        perf = document.get(f"{kind}_perf")
        if isinstance(perf, dict):
            return _record(document.get("header"), perf, kind)
    stats = document.get("dump_stats")
    return _dropped(stats) if isinstance(stats, dict) else None


def _record(header: Any, perf: dict[str, Any], kind: str) -> Record | None:
    if not isinstance(header, dict):
        return None
    rank, nranks = _whole(header.get("rank"), MAX_RANK), _whole(header.get("n_ranks"), MAX_RANK)
    took = perf.get(f"{kind}_exec_time_us")
    if isinstance(took, float) and 0 <= took <= MAX_MICROSECONDS:  # floats occur, too
        took = round(took)
    took = _whole(took, MAX_MICROSECONDS)
    size = _whole(perf.get(f"{kind}_msg_size_bytes"), MAX_BYTES)
    source = TIMING.get(str(perf.get(f"{kind}_timing_source")))
    if rank is None or nranks is None or took is None or size is None or source is None:
        return None
    if rank >= nranks:
        return None
    return Record(rank, nranks, operation(perf.get(kind)), source, took / 1e6, size)


def _dropped(stats: dict[str, Any]) -> Dropped | None:
    counts = [
        _whole(stats.get(f"{kind}_dropped_since_last_dump"), MAX_BYTES) for kind in ("coll", "p2p")
    ]
    return Dropped(sum(count for count in counts if count is not None))


def _whole(value: object, limit: int) -> int | None:
    """Return a whole number from 0 to a limit; JSON's true and false are rejected."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit:
        return value
    return None
