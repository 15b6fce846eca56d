"""Parses Inspector's Prometheus files: pure.

There is one file per GPU, named after its UUID and rewritten every 30 s or more (NVIDIA/nccl
plugins/profiler/inspector/inspector_prom.cc, NCCL 2.30 and newer). Each value is a mean over the
operations of one communicator, size range and algorithm since the previous write; their number is
not given, so means cannot be combined. Earlier versions (ext-profiler/inspector) report only the
last operation of a communicator, with its own size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope_agent.sources.nccl_inspector.records import MAX_MICROSECONDS, operation

FILE_NAME = re.compile(
    r"nccl_inspector_metrics_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.prom"
)

MAX_LINES = 20_000
"""Lines read of one file: some 50 for each of a few hundred communicators."""

MAX_BYTES_PER_SECOND = 1e14
"""Largest bandwidth accepted: fifty times that of NVLink 5."""

_LINE = re.compile(
    r"(nccl_(?:p2p_)?bus_bandwidth_gbs|nccl_collective_exec_time_microseconds|"
    r"nccl_p2p_exec_time_microseconds)\{([^}\n]{1,1500})\} ([0-9.e+-]{1,24})"
)
_LABEL = re.compile(r'(\w{1,40})="([^"\n]{0,300})"')
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,2})?)(?:-\d{1,6})?(B|KB|MB|GB|TB)")
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


@dataclass(frozen=True, slots=True)
class Speed:
    """The recent speed of an operation on one GPU, for its largest messages.

    Args:
        scope: inter_node or intra_node, depending on the nodes of the communicator.
        size: lower end of the size range, in bytes.
        seconds: mean duration; None if not printed.
        bytes_per_second: bus bandwidth; None if not printed.
    """

    operation: str
    scope: str
    size: int
    seconds: float | None
    bytes_per_second: float | None


def gpu_uuid(name: str) -> str | None:
    """Return the UUID of a file's GPU in NVML's notation; None for other files."""
    match = FILE_NAME.fullmatch(name)
    return f"GPU-{match[1]}" if match else None


def parse(text: str) -> tuple[Speed, ...]:
    """Return one speed per operation and scope: that of its largest messages.

    Large messages show the links; the duration of small ones is latency. If several communicators
    have messages of that size, the slowest counts.
    """
    found: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
    for line in text.splitlines()[:MAX_LINES]:
        match = _LINE.fullmatch(line.strip())
        value = _number(match[3]) if match else None
        if match is None or value is None:
            continue
        labels = dict(_LABEL.findall(match[2]))
        name = operation(labels.get("collective", labels.get("p2p_operation")))
        scope = "inter_node" if labels.get("n_nodes", "1") not in {"0", "1"} else "intra_node"
        is_time = match[1].endswith("microseconds")
        if value <= (MAX_MICROSECONDS if is_time else MAX_BYTES_PER_SECOND / 1e9):
            entry = found.setdefault((name, scope), {})
            _keep(entry, "seconds" if is_time else "bandwidth", _size(labels), value)
    return tuple(_speed(*key, entry) for key, entry in sorted(found.items()))


def _keep(entry: dict[str, tuple[int, float]], name: str, size: int, value: float) -> None:
    known = entry.get(name)
    slower = max if name == "seconds" else min
    if known is None or size > known[0]:
        entry[name] = (size, value)
    elif size == known[0]:
        entry[name] = (size, slower(known[1], value))


def _speed(name: str, scope: str, entry: dict[str, tuple[int, float]]) -> Speed:
    took, speed = entry.get("seconds"), entry.get("bandwidth")
    size = max(pair[0] for pair in entry.values())
    return Speed(
        name,
        scope,
        size,
        took[1] / 1e6 if took else None,
        speed[1] * 1e9 if speed else None,
    )


def _size(labels: dict[str, str]) -> int:
    match = _SIZE.fullmatch(labels.get("message_size", ""))
    return round(float(match[1]) * _UNITS[match[2]]) if match else 0


def _number(text: str) -> float | None:
    """Return a value above 0; Inspector prints 0 if it measured nothing."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None
