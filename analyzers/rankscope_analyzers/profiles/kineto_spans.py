"""Classifies the events of a PyTorch profiler (Kineto) trace into parts of steps; no I/O.

Categories are those of libkineto's ActivityType: "kernel" on the device, "user_annotation" on
the host, "gpu_user_annotation" on the device, and "cpu_op" for operators. Names of host events are
those that torch 2.6 and 2.13 write. `ts` and `dur` are microseconds, since `baseTimeNanoseconds`
where a trace has that.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats

MAXIMUM_SPANS = 8_000_000
"""Spans kept of one trace, 160 MB: hundreds of steps of ten thousand kernels. A trace with more is
refused, as half a trace would name the wrong rank."""

MAXIMUM_MICROSECONDS = 4_102_444_800 * 1e6
"""Start of the year 2100; later times are invalid."""

_STEP = re.compile(r"ProfilerStep#(\d{1,12})")
_LOADER = "enumerate(DataLoader)#"
_OPTIMIZER = "Optimizer.step#"
_GLOO = "gloo:"  # from launch to completion, on a thread of gloo's
_EXCHANGES = re.compile(
    # NCCL before 2.19, since, and on symmetric memory (2.27: ncclSymDev.., later ncclSymkDev..).
    r"nccl\w*Kernel"
    # torch's own on symmetric memory (c10d/symm_mem/CUDASymmetricMemoryOps.cu).
    r"|(?:one|two)_shot_all_reduce_kernel|multimem_\w*kernel"
    # Experts' tokens, which wait for those of other ranks in one kernel.
    r"|deep_ep::|nvshmem"
)
"""Kernels in which a rank waits for others; counted as compute they would blame the waiting
rank."""

_BLOCKING = ("c10d::monitored_barrier_", "_c10d_functional::wait_tensor")
# Operators of these namespaces launch or wait, or are autograd's frames around other operators.
_NOT_COMPUTE = (
    "c10d::",
    "_c10d_functional::",
    "c10d_functional::",
    "autograd::",
    "torch::autograd::",
)


class TraceError(ValueError):
    """A trace cannot be used; the message says what is missing or wrong."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """A step as the host saw it; microseconds of the trace's clock."""

    number: int
    begin: float
    end: float
    thread: int


class Spans:
    """Intervals of one sort, each with the thread that it ran on."""

    def __init__(self) -> None:
        self._begins = array("d")
        self._ends = array("d")
        self._threads = array("i")

    def __len__(self) -> int:
        return len(self._begins)

    def add(self, begin: float, end: float, thread: int) -> None:
        """Add one, in microseconds."""
        self._begins.append(begin)
        self._ends.append(end)
        self._threads.append(thread)

    def on(self, thread: int | None = None) -> Floats:
        """Return (n, 2) begins and ends, of one thread or of all."""
        if not len(self):
            return np.empty((0, 2))
        spans = np.column_stack([np.frombuffer(self._begins), np.frombuffer(self._ends)])
        return spans if thread is None else spans[np.frombuffer(self._threads, np.intc) == thread]


class TraceSpans:
    """The content of one trace, filled by `take` member by member.

    Attributes:
        about: the members that describe the writer of the trace.
        steps: the host's `ProfilerStep#N`.
        device_ends: when the last kernel of a step ended, by its number.
        optimizer: one span per step of the optimizer that was seen first.
        loader: waiting for a DataLoader.
        work: operators that compute.
        blocked: operators that wait for other ranks.
        gloo: collectives under way.
        kernels: on a device, that compute.
        exchanges: on a device, that wait for other ranks: those of NCCL and similar libraries.
    """

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}
        self.steps: list[StepSpan] = []
        self.device_ends: dict[int, float] = {}
        self.optimizer, self.loader, self.work = Spans(), Spans(), Spans()
        self.blocked, self.gloo = Spans(), Spans()
        self.kernels, self.exchanges = Spans(), Spans()
        self._threads: dict[tuple[str, str], int] = {}
        self._optimizer_name = ""
        self._kept = 0

    def take(self, member: str, value: Any) -> None:
        """Add an event of `traceEvents`, or another member of the trace.

        Raises:
            TraceError: there are more events than are kept of one trace.
        """
        if member in {"distributedInfo", "host_name", "baseTimeNanoseconds"}:
            self.about[member] = value
        if member != "traceEvents" or not isinstance(value, Mapping) or value.get("ph") != "X":
            return
        name, begin, duration = value.get("name"), value.get("ts"), value.get("dur")
        if not isinstance(name, str) or not _is_time(begin) or not _is_time(duration):
            return
        thread = (str(value.get("pid")), str(value.get("tid")))
        number = self._threads.setdefault(thread, len(self._threads))
        category = str(value.get("cat", "")).lower()
        if self._sort(category, name, begin, begin + duration, number):
            self._kept += 1
            if self._kept > MAXIMUM_SPANS:
                raise TraceError(f"holds more than {MAXIMUM_SPANS} spans; trace fewer steps")

    def _sort(self, category: str, name: str, begin: float, end: float, thread: int) -> bool:
        """Keep an event if it is useful for steps; return True if so."""
        step = _STEP.fullmatch(name)
        if step and category == "gpu_user_annotation":
            # Every stream has a separate annotation.
            number = int(step[1])
            self.device_ends[number] = max(end, self.device_ends.get(number, end))
        elif step:
            self.steps.append(StepSpan(int(step[1]), begin, end, thread))
        else:
            sort = self._sort_of(category, name)
            if sort is None:
                return False
            sort.add(begin, end, thread)
        return True

    def _sort_of(self, category: str, name: str) -> Spans | None:
        if category == "kernel":
            return self.exchanges if _EXCHANGES.search(name) else self.kernels
        if category == "gpu_user_annotation":
            return None
        if "::" in name:
            return self._operator_sort(name) if category == "cpu_op" else None
        return self._annotation_sort(name)

    def _operator_sort(self, name: str) -> Spans | None:
        if name in _BLOCKING:
            return self.blocked
        return None if name.startswith(_NOT_COMPUTE) else self.work

    def _annotation_sort(self, name: str) -> Spans | None:
        if name.startswith(_LOADER):
            return self.loader
        if name.startswith(_GLOO):
            return self.gloo
        if name.startswith(_OPTIMIZER):
            self._optimizer_name = self._optimizer_name or name
            return self.optimizer if name == self._optimizer_name else None
        return None


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and 0 <= value <= MAXIMUM_MICROSECONDS
