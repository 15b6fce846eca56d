"""Step times of one rank from its PyTorch profiler (Kineto) trace; no I/O.

Steps are the profiler's own `ProfilerStep#N`, which `profiler.step()` ends; in a trace without them
a step lasts from one end of the optimizer's `step()` to the next.

With kernels in the trace, times are the device's. A step then lasts from the end of the previous
step's last kernel to that of its own; compute is the union of its kernels that exchange nothing,
sync that of kernels of NCCL and similar libraries while none of those runs, and data the
DataLoader's spans during which the device is idle. A host runs ahead of its device, so its own
spans say little about device time.

Without kernels, times are the host's. Sync is the time in which a gloo collective is under way, or
an operator waits for one, while the thread of the steps neither computes nor loads; compute is the
rest. Python code that runs no operator while a collective is under way counts as sync.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.intervals import covered, union
from rankscope_analyzers.profiles.kineto_spans import StepSpan, TraceError, TraceSpans
from rankscope_analyzers.steps.process_groups import Layout, layout
from rankscope_analyzers.steps.records import MAXIMUM_RANK

OPERATOR_GAP_MICROSECONDS = 100.0
"""Python needs 10 to 60 us between two operators (in the trace of a gloo job). A shorter wait for a
peer matters to no verdict."""

MAXIMUM_UNIX_NS = 4_102_444_800 * 10**9
"""Start of the year 2100; later times are invalid."""

_SECONDS = 1e-6  # per microsecond
_NODE_SIZE = 256  # as in ring files
_NOT_IN_NODES = re.compile(r"[^A-Za-z0-9._/:@-]")


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a trace; None, or for the node `unknown`, if the trace does not name it."""

    rank: int | None
    world_size: int | None
    backend: str
    node: str
    base_unix_ns: int
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of one rank, in order; times in seconds, NaN if unknown.

    Args:
        timing_source: kernel, wall, or none if compute and waiting cannot be distinguished.
        numbers: (n,) the profiler's step numbers.
        starts: (n,) Unix times.
    """

    timing_source: Literal["kernel", "wall", "none"]
    numbers: Integers
    starts: Floats
    step: Floats
    data: Floats
    compute: Floats
    sync: Floats


@dataclass(frozen=True, slots=True)
class _Windows:
    """Steps as (n, 2) begins and ends in microseconds, and the thread that ran them."""

    numbers: Integers
    spans: Floats
    thread: int | None


def writer(about: Mapping[str, Any]) -> Writer:
    """Read the writer of a trace from its members other than events.

    Raises:
        TraceError: a member has an impossible value.
    """
    job = about.get("distributedInfo")
    job = job if isinstance(job, Mapping) else {}
    base = about.get("baseTimeNanoseconds", 0)
    node = about.get("host_name")
    rank = _number("distributedInfo.rank", job.get("rank"), 0, MAXIMUM_RANK)
    size = _number("distributedInfo.world_size", job.get("world_size"), 1, MAXIMUM_RANK)
    rank_layout = None if rank is None or size is None else layout(rank, size, job.get("pg_config"))
    return Writer(
        rank=rank,
        world_size=size,
        backend=str(job.get("backend", "")),
        node=node_name(node) if isinstance(node, str) else "unknown",
        base_unix_ns=_number("baseTimeNanoseconds", base, 0, MAXIMUM_UNIX_NS) or 0,
        layout=rank_layout,
    )


def node_name(text: str) -> str:
    """Return a node's name in the characters that reports may hold."""
    return _NOT_IN_NODES.sub("_", text[:_NODE_SIZE])


def _number(name: str, value: Any, low: int, high: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise TraceError(f"has {name} {value!r}, expected {low} to {high}")
    return value


def rank_steps(trace: TraceSpans, by: Writer) -> RankSteps:
    """Divide the time of every step; the result may hold no step.

    Args:
        trace: all of the rank's trace.
        by: its writer.
    """
    on_device = len(trace.kernels) > 0
    windows = _windows(trace, on_device)
    parts = _device_parts if on_device else _host_parts
    source, data, compute, sync = parts(trace, windows, by)
    spans = windows.spans
    return RankSteps(
        timing_source=source,
        numbers=windows.numbers,
        starts=by.base_unix_ns / 1e9 + spans[:, 0] * _SECONDS,
        step=(spans[:, 1] - spans[:, 0]) * _SECONDS,
        data=data * _SECONDS,
        compute=compute * _SECONDS,
        sync=sync * _SECONDS,
    )


def _windows(trace: TraceSpans, on_device: bool) -> _Windows:
    steps = _whole_steps(trace)
    if not steps:
        return _optimizer_windows(trace)
    numbers = np.array([step.number for step in steps], dtype=np.int64)
    spans = np.array([(step.begin, step.end) for step in steps])
    if on_device and all(step.number in trace.device_ends for step in steps):
        spans = _device_spans(steps, trace.device_ends)
    return _Windows(numbers, spans, steps[0].thread)


def _whole_steps(trace: TraceSpans) -> list[StepSpan]:
    """Return the annotated steps in order, without one that the profiler's end cut off."""
    steps = sorted(trace.steps, key=lambda step: step.begin)
    if len(trace.optimizer) and steps:
        updates = trace.optimizer.on()
        inside = (updates[:, 0] >= steps[-1].begin) & (updates[:, 1] <= steps[-1].end)
        return steps if inside.any() else steps[:-1]
    return steps


def _device_spans(steps: Sequence[StepSpan], device_ends: Mapping[int, float]) -> Floats:
    """Return (n, 2) from one step's last kernel to the next one's, the first from its own begin."""
    ends = np.maximum.accumulate([device_ends[step.number] for step in steps])
    follows = np.append(False, np.diff([step.number for step in steps]) == 1)
    begins = np.where(follows, np.roll(ends, 1), [step.begin for step in steps])
    return np.column_stack([np.minimum(begins, ends), ends])


def _optimizer_windows(trace: TraceSpans) -> _Windows:
    ends = np.sort(trace.optimizer.on()[:, 1])
    count = max(len(ends) - 1, 0)
    return _Windows(np.arange(1, count + 1), np.column_stack([ends[:count], ends[1:]]), None)


_Parts = tuple[Literal["kernel", "wall", "none"], Floats, Floats, Floats]


def _device_parts(trace: TraceSpans, windows: _Windows, by: Writer) -> _Parts:
    """Return data, compute and sync of each window on the device, in microseconds."""
    kernels, exchanges = union(trace.kernels.on()), trace.exchanges.on()
    busy = union(kernels, exchanges)
    compute = covered(kernels, windows.spans)
    occupied = covered(busy, windows.spans)
    data = covered(union(busy, trace.loader.on(windows.thread)), windows.spans) - occupied
    is_complete = len(exchanges) or by.world_size == 1
    sync = occupied - compute if is_complete else _unknown(windows)
    return "kernel", data, compute, sync


def _host_parts(trace: TraceSpans, windows: _Windows, by: Writer) -> _Parts:
    """Return data, compute and sync of each window on the host, in microseconds."""
    loading = union(trace.loader.on(windows.thread))
    data = covered(loading, windows.spans)
    waits = union(trace.gloo.on(), trace.blocked.on(windows.thread))
    if by.world_size != 1 and (not len(waits) or "nccl" in by.backend):
        return "none", data, _unknown(windows), _unknown(windows)
    # Only gaps next to a wait are bridged: any other gap is compute, with or without an operator.
    work = union(trace.work.on(windows.thread), bridging=OPERATOR_GAP_MICROSECONDS)
    occupied = union(work, loading)
    sync = covered(union(occupied, waits), windows.spans) - covered(occupied, windows.spans)
    compute = windows.spans[:, 1] - windows.spans[:, 0] - data - sync
    return "wall", data, compute, sync


def _unknown(windows: _Windows) -> Floats:
    return np.full(len(windows.spans), np.nan)
