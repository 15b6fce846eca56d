"""Small traces of the shape that torch's profiler writes, with times that are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
HOST, LOADER_THREAD, GLOO_THREAD = 100, 101, 102
COMPUTE_STREAM, NCCL_STREAM = 7, 20


@dataclass
class Trace:
    """A trace that is being written; times in microseconds."""

    rank: int | None = 0
    world_size: int = 2
    backend: str = "nccl"
    events: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)

    def add(self, category: str, name: str, begin: float, duration: float, tid: int = HOST) -> None:
        pid = 0 if category in {"kernel", "gpu_user_annotation"} else 4711
        span = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
        self.events.append({**span, "ts": begin, "dur": duration, "args": {"External id": 1}})

    def document(self) -> dict[str, Any]:
        info: dict[str, Any] = {
            "backend": self.backend,
            "rank": self.rank,
            "world_size": self.world_size,
        }
        groups = [{"pg_desc": name, "ranks": ranks} for name, ranks in self.groups.items()]
        info = {**info, "pg_config": groups}
        return {
            "schemaVersion": 1,
            "deviceProperties": [],
            **({} if self.rank is None else {"distributedInfo": info}),
            "host_name": "gpu-07",
            "baseTimeNanoseconds": 1_700_000_000 * 10**9,
            "traceEvents": [
                {"ph": "M", "name": "process_name", "ts": 0.0, "pid": 1, "args": {"name": "x"}},
                *self.events,
            ],
            "traceName": "trace.json",
        }


def device_trace(
    rank: int, steps: int = 24, compute: float = 50_000.0, peers: float = 50_000.0
) -> Trace:
    """Give an NCCL rank's trace: each step computes, then waits until its slowest peer is there.

    The host runs ahead: it has launched a step's kernels long before they run. The exchange takes
    4 ms and overlaps the last 1 ms of compute.
    """
    trace = Trace(rank)
    slowest = max(compute, peers)
    for step in range(steps):
        host, device = step * 2_000.0, 10_000.0 + step * (slowest + 3_000.0)
        trace.add("user_annotation", f"ProfilerStep#{step}", host, 1_990.0)
        trace.add("user_annotation", "Optimizer.step#AdamW.step", host + 1_500.0, 300.0)
        end = device + slowest + 3_000.0
        half = compute / 2
        trace.add("kernel", "void gemm<float>(int)", device, half + 10.0, COMPUTE_STREAM)
        trace.add("kernel", "void gemm<float>(int)", device + half, half, COMPUTE_STREAM)
        begin = device + compute - 1_000.0
        trace.add("kernel", NCCL_KERNEL, begin, end - begin, NCCL_STREAM)
        for stream, first in ((COMPUTE_STREAM, device), (NCCL_STREAM, begin)):
            last = end if stream == NCCL_STREAM else device + compute
            name = f"ProfilerStep#{step}"
            trace.add("gpu_user_annotation", name, first, last - first, stream)
    return trace
