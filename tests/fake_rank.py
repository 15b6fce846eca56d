"""A rank on a fake device under the probe: a torch with no more than the probe looks at.

Collectives are those of NCCL: asynchronous ones run on a stream of their communicator, behind what
the current stream was given before, and give a Work back; others run on the current stream since
torch 2.8, and give none (ProcessGroupNCCL.cpp, `asyncOp`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe
from fake_streams import PEERS, Device, Event, Stream, Truth

MS = 1_000_000
EVERY_STEP = 1


class Loss:
    """A tensor at which a backward begins."""

    requires_grad = True

    def __init__(self) -> None:
        self.hooks: list[Callable[[Any], None]] = []

    def register_hook(self, hook: Callable[[Any], None]) -> None:
        self.hooks.append(hook)


class FakeRank:
    """One rank of a job of two, which samples every step unless told otherwise.

    Args:
        directory: of the ring.
        replicated: whether DistributedDataParallel is around the model.
        call_ms: what each call to the device costs the host.
        every: steps between samples; None for what the probe chooses.
        rank: of two.
    """

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        replicated: bool = False,
        call_ms: float = 0.001,
        every: int | None = EVERY_STEP,
        rank: int = 0,
    ) -> None:
        self.rank = rank
        monkeypatch.setenv("RANKSCOPE_RING_DIR", str(directory))
        monkeypatch.setenv("RANKSCOPE_PROBE_STREAM_WAITS", "1")
        self.device = Device(call_ms)
        monkeypatch.setattr(rankscope_probe, "time", clocks(self.device))
        if every is not None:
            monkeypatch.setattr(rankscope_probe, "_FIRST_INTERVAL", every)
            waits = rankscope_probe._StreamWaits
            monkeypatch.setattr(waits, "choose_interval", lambda self: None)
        self.torch = self.namespace()
        self.probe = rankscope_probe._Probe(self.torch)
        self.probe.backwards.hook()
        self.probe.device = "cuda"
        self.model = type("Model", (), {})()
        if replicated:
            self.probe.replicated(self.model)
        self.fetch = self.probe.loader.fetching(self.device.fetch, counted=False)
        self.truths: list[tuple[float, Truth]] = []
        self.began = self.last_end = self.device.now
        self.probe.end_step(0)

    def namespace(self) -> Any:
        device, self.callbacks = self.device, list[Callable[[], None]]()
        self.channel: Stream = device.cuda.Stream(0)  # that NCCL runs this group's collectives on
        self.launched = 0
        self.group = group_type(self)()
        world = SimpleNamespace(pg_group_ranks={self.group: {0: 0, 1: 1}}, pg_map={self.group: 0})
        bindings = SimpleNamespace(Work=work_type(device), ProcessGroup=type(self.group))
        self.kernels: list[Callable[..., Any]] = []
        redispatch = SimpleNamespace(redispatch=lambda keys, work: work.reach())
        functional = SimpleNamespace(wait_tensor=SimpleNamespace(default=redispatch))
        self.Work = bindings.Work
        return SimpleNamespace(
            __version__="2.13.0+cu130",
            Tensor=Loss,
            cuda=device.cuda,
            is_grad_enabled=lambda: True,
            ops=SimpleNamespace(_c10d_functional=functional),
            library=SimpleNamespace(Library=library_type(self.kernels)),
            _disable_dynamo=lambda function: function,
            _C=SimpleNamespace(
                _distributed_c10d=bindings,
                DispatchKey=SimpleNamespace(BackendSelect="select"),
                Future=type("Future", (), {"wait": lambda future: future.work.reach()}),
            ),
            autograd=SimpleNamespace(
                Variable=SimpleNamespace(
                    _execution_engine=SimpleNamespace(queue_callback=self.callbacks.append)
                ),
                backward=self.run_backward,
            ),
            distributed=SimpleNamespace(
                is_available=lambda: True,
                is_initialized=lambda: True,
                get_world_size=lambda: 2,
                get_rank=lambda: self.rank,
                distributed_c10d=SimpleNamespace(_world=world),
            ),
        )

    def functional(self, milliseconds: float) -> Any:
        """Launch a collective of `_c10d_functional`, as compiled code and DTensor do, in C++."""
        self.launched += 1
        return self.Work(self.device.collective(self.channel, milliseconds))

    def wait_tensor(self, work: Any) -> None:
        """Call the operator, which goes through the kernel that is registered last."""
        if self.kernels:
            self.kernels[-1](SimpleNamespace(remove=lambda key: "others"), work)
        else:
            work.reach()

    def run_backward(self, loss: Loss, work: Callable[[], None] | None = None) -> None:
        """Run a backward, then the final callbacks of autograd's engine."""
        for hook in loss.hooks:
            hook(None)
        if work is not None:
            work()
        while self.callbacks:
            self.callbacks.pop(0)()

    def backward(self, work: Callable[[], None]) -> None:
        """Run a backward with the engine's hooks and callbacks around it."""
        self.torch.autograd.backward(Loss(), work)

    def end_step(self, ahead: bool = False) -> None:
        """End the step, where the host waits for this one's end on the device, or the last one's.

        As reading a loss makes it: in C++, which no hook sees.
        """
        end = self.device.training.free
        self.device.now = max(self.device.now, self.last_end if ahead else end)
        self.last_end = end
        before = self.device.now
        self.probe.end_step(0)
        self.truths.append((before - self.began, self.device.truth()))
        self.began = before


def clocks(device: Device) -> Any:
    """Return a module `time` that shows the fake host's time."""

    def nanoseconds() -> int:
        return int(device.now * MS)

    return SimpleNamespace(
        perf_counter_ns=nanoseconds,
        thread_time_ns=nanoseconds,
        time_ns=lambda: nanoseconds() + 1_700_000_000 * 1000 * MS,
        time=lambda: device.now / 1e3 + 1_700_000_000,
        sleep=lambda seconds: None,
    )


def work_type(device: Device) -> Any:
    """Return the class of what asynchronous collectives give back."""

    class Work:
        def __init__(self, end: Event) -> None:
            self.end = end

        def reach(self) -> None:
            device.called()
            device.stream().await_event(self.end)

        def wait(self) -> None:
            self.reach()

    return Work


def group_type(rank: FakeRank) -> Any:
    """Return a class of process groups."""

    class ProcessGroup:
        def _get_sequence_number_for_group(self) -> int:
            return rank.launched

        def launch(self, milliseconds: float, async_op: bool) -> Any:
            rank.launched += 1
            if not async_op:
                rank.device.kernel(milliseconds, PEERS)
                return None
            return rank.Work(rank.device.collective(rank.channel, milliseconds))

        def allreduce(self, milliseconds: float, async_op: bool = True) -> Any:
            return self.launch(milliseconds, async_op)

        def _allgather_base(self, milliseconds: float, async_op: bool = True) -> Any:
            return self.launch(milliseconds, async_op)

        def _reduce_scatter_base(self, milliseconds: float, async_op: bool = True) -> Any:
            return self.launch(milliseconds, async_op)

        def recv(self, milliseconds: float) -> Any:
            return None  # within a group of messages, which `_end_coalescing` launches

        def _end_coalescing(self, milliseconds: float) -> Any:
            return self.launch(milliseconds, True)

    return ProcessGroup


def library_type(kernels: list[Callable[..., Any]]) -> Any:
    """Return the class of torch's libraries of operators."""

    class Library:
        def __init__(self, namespace: str, kind: str) -> None:
            assert (namespace, kind) == ("_c10d_functional", "IMPL")

        def impl(self, name: str, kernel: Any, key: str, *, with_keyset: bool) -> None:
            assert (name, key, with_keyset) == ("wait_tensor", "BackendSelect", True)
            kernels.append(kernel)

        def _destroy(self) -> None:
            kernels.pop()

    return Library
