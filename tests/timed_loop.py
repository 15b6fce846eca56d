"""A training loop on a torch and a clock that tests move by hand, and the probe that watches it.

Every sequence of calls is one that training loops make; times are exact, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe
from probe_jobs.running import Extended, read_extended

MS = 1_000_000


class Batch:
    """What a loader gives; of no known size."""


class Optimizer:
    def __init__(self, name: str) -> None:
        self.parameter = SimpleNamespace(device=SimpleNamespace(type="cpu"), name=name)
        self.param_groups = [{"params": [self.parameter]}]


class Loop:
    """A training loop of a job of one process, and the probe that watches it."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANKSCOPE_RING_DIR", str(directory))
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "1")
        self.directory = directory
        self.now, self.nodes, self.gradients = 0, 0, True
        self.inside: Callable[[], object] = lambda: None
        clock = SimpleNamespace(
            perf_counter_ns=lambda: self.now,
            thread_time_ns=lambda: 0,  # what passes passes off the CPU
            time_ns=lambda: self.now + 1,
            time=lambda: 0.0,
        )
        monkeypatch.setattr(rankscope_probe, "time", clock)
        self.torch = SimpleNamespace(
            _C=SimpleNamespace(),
            __version__="2.13.0",
            Tensor=Batch,
            is_grad_enabled=lambda: self.gradients,
            distributed=SimpleNamespace(is_available=lambda: False),
            _disable_dynamo=lambda function: function,
            autograd=SimpleNamespace(
                Variable=SimpleNamespace(_execution_engine=SimpleNamespace(queue_callback=None)),
                _get_sequence_nr=lambda: self.nodes,
                backward=self._backward,
            ),
        )
        self.probe = rankscope_probe._Probe(self.torch)
        self.probe.backwards.hook()
        self.fetch = self.probe.loader.fetching(self._fetch, counted=True)
        self.over = self.probe.loader.fetching(lambda batches: batches, counted=False)
        self.first = Optimizer("first")
        self.step(5)  # the first step is nobody's: it has no known begin

    def spend(self, ms: float) -> None:
        self.now += int(ms * MS)

    def batch(self) -> None:
        """Wait 2 ms for a batch."""
        self.fetch(None)

    def batches(self, count: int) -> Iterator[None]:
        """Loop over a loader, waiting 2 ms for each batch and for the end."""
        left = self.over([Batch()] * count)
        with suppress(StopIteration):
            while True:
                self.fetch(left)
                yield

    def _fetch(self, left: list[Batch] | None) -> Batch:
        self.spend(2)
        if left == []:
            raise StopIteration
        return left.pop() if left else Batch()

    def forward(self, ms: float = 10) -> None:
        self.spend(ms)
        self.nodes += 3 if self.gradients else 0

    def backward(self, ms: float = 20) -> None:
        self.ms = ms
        self.torch.autograd.backward(Batch())

    def _backward(self, tensors: Any) -> None:
        self.spend(self.ms)
        self.inside()

    def train(self) -> None:
        self.forward()
        self.backward()
        self.step()

    def step(self, ms: float = 4, optimizer: Optimizer | None = None) -> None:
        self.spend(ms)
        self.probe.step_finished(optimizer or self.first, (), {})

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        self.gradients = False
        yield
        self.gradients = True

    def records(self) -> list[tuple[float, ...]]:
        """Return data, compute, sync and other of each step, in milliseconds."""
        return [
            (record.data_ns / MS, record.compute_ns / MS, record.sync_ns / MS, record.other_ns / MS)
            for record in self.extended()
        ]

    def extended(self) -> list[Extended]:
        """Return the steps as newer agents know them, once all is written."""
        self.probe.write_rest()
        return read_extended(self.directory)

    def only(self) -> tuple[float, ...]:
        (record,) = self.records()
        return record
