"""A fake of torch.cuda, and a rank that trains on it: no test here has a GPU.

The fake's stream is a list of things to do, each with the time it takes; the device works them off
when a test says so, long after the host has gone on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe

MS = 1_000_000


class Event:
    """Has what the probe may use: nothing that waits for the device is there to be called."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.passed_at: float | None = None
        self.recorded = 0

    def record(self) -> None:
        assert not self.cuda.capturing, "an event was put into a graph"
        self.passed_at = None
        self.recorded += 1
        self.cuda.queue.append(self)

    def query(self) -> bool:
        return self.passed_at is not None

    def elapsed_time(self, end: Event) -> float:
        assert self.passed_at is not None
        assert end.passed_at is not None
        return end.passed_at - self.passed_at


class Cuda:
    """A device with one stream; times in milliseconds."""

    def __init__(self) -> None:
        self.capturing, self.initialized = False, True
        self.queue: list[Event | float] = []
        self.now = 0.0
        self.made: list[Event] = []

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        self.made.append(Event(self))
        return self.made[-1]

    def is_available(self) -> bool:
        raise AssertionError("it begins the use of CUDA's driver, which no forked process survives")

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def get_device_properties(self, index: int) -> SimpleNamespace:
        assert not self.capturing, "a driver is asked nothing while a graph is captured"
        assert self.initialized, "CUDA would be initialized, and forked processes could not use it"
        return SimpleNamespace(uuid=uuid.UUID(bytes=bytes(range(index, index + 16))))

    def work_off(self) -> None:
        for item in self.queue:
            if isinstance(item, Event):
                item.passed_at = self.now
            else:
                self.now += item
        self.queue.clear()


class Loss:
    requires_grad = True

    def __init__(self) -> None:
        self.hooks: list[Callable[[Any], None]] = []

    def register_hook(self, hook: Callable[[Any], None]) -> None:
        self.hooks.append(hook)


class Job:
    """A rank of a job, with a torch that has no more than the probe looks at."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, groups: int = 1, **given: Any
    ) -> None:
        monkeypatch.setenv("RANKSCOPE_RING_DIR", str(directory))
        self.cuda = Cuda()
        self.callbacks: list[Callable[[], None]] = []
        self.wait_ms = 0.0
        world = SimpleNamespace(
            pg_group_ranks={f"group {number}": {0: 0, 1: 1} for number in range(groups)},
            pg_map={},
        )
        bindings = SimpleNamespace(Work=type("Work", (), {"wait": lambda work: None}))
        self.torch = SimpleNamespace(
            __version__="2.13.0+cu130",
            Tensor=Loss,
            cuda=self.cuda,
            is_grad_enabled=lambda: True,
            _disable_dynamo=lambda function: function,
            _C=SimpleNamespace(_distributed_c10d=bindings),
            autograd=SimpleNamespace(
                Variable=SimpleNamespace(
                    _execution_engine=SimpleNamespace(queue_callback=self.callbacks.append)
                ),
                backward=self.backward,
            ),
            distributed=SimpleNamespace(
                is_available=lambda: True,
                is_initialized=lambda: True,
                get_world_size=lambda: 2,
                get_rank=lambda: 0,
                distributed_c10d=SimpleNamespace(_world=world),
            ),
        )
        self.probe = rankscope_probe._Probe(self.torch)
        self.probe.backwards.hook()
        self.probe.device = "cuda"
        self.probe.mesh = given.get("mesh")
        self.model = SimpleNamespace()  # only its being there matters
        if given.get("replicated", True):
            self.model = type("Model", (), {})()
            self.probe.replicated(self.model)
        self.probe.end_step(0)

    def backward(self, loss: Loss) -> None:
        """Run kernels for 5 ms, then what was queued, which the reducer's wait is part of."""
        for hook in loss.hooks:
            hook(None)
        self.cuda.queue.append(5.0)
        self.callbacks.append(lambda: self.cuda.queue.append(self.wait_ms))
        while self.callbacks:
            self.callbacks.pop(0)()

    def step(self, wait_ms: float, backwards: int = 1) -> None:
        self.wait_ms = wait_ms
        for _ in range(backwards):
            self.torch.autograd.backward(Loss())
        # The host is faster than the device; a real step would take its time.
        self.probe.clock.begin_ns -= 100 * MS
        self.probe.end_step(0)
