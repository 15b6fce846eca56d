"""Torch's own training code on gloo, with streams and events of a fake device in place of its own.

usage: streams.py ddp | fsdp1 | fsdp2 | tensor | pipeline SEED STEPS

Collectives really run, and take the fake device as long as is drawn for each. Prints, as a line of
JSON, what the probe measured of each step and what the device really did.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["RANKSCOPE_PROBE"] = "0"  # it is put in below, on the fake device
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import rankscope_probe
from fake_rank import clocks
from fake_streams import COPIES, PEERS, Device, Event

WIDTH, LAYERS = 16, 4
ON_TRAINING_STREAM = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)
"""Where collectives with async_op=False run, which give no Work back; those of older ones do."""

device = Device(call_ms=0.001)
times = random.Random()
ends: dict[int, tuple[object, Event]] = {}
buckets: list[Event] = []
launching = threading.local()


def exchange() -> float:
    return times.uniform(0.5, 20.0)


class Kernel(torch.autograd.Function):
    """Takes the device some time, forward and backward."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        device.kernel(times.uniform(1.0, 10.0))
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        device.kernel(times.uniform(2.0, 20.0))
        return gradient


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Kernel.apply(self.linear(value))
        return result


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, number: int) -> torch.Tensor:
        device.host(times.uniform(0.0, 5.0))
        return torch.ones(8, WIDTH)


def simulate_groups() -> None:
    """Have process groups do as those of NCCL: asynchronous on a stream of theirs, or here."""
    bindings = torch._C._distributed_c10d
    group_type, channel = bindings.ProcessGroup, device.cuda.Stream(0)
    wait = bindings.Work.wait

    def waiting(work: Any, *arguments: Any) -> Any:
        result = wait(work, *arguments)
        if id(work) in ends:
            device.stream().await_event(ends[id(work)][1])
        return result

    def launched(own: Callable[..., Any]) -> Callable[..., Any]:
        def launch(group: Any, *arguments: Any, **options: Any) -> Any:
            launching.here = True
            try:
                work = own(group, *arguments, **options)
            finally:
                launching.here = False
            if work is None:
                return None
            chosen = [one.asyncOp for one in arguments if hasattr(one, "asyncOp")]
            if False in chosen and ON_TRAINING_STREAM:
                wait(work)
                device.kernel(exchange(), PEERS)
                return None
            ends[id(work)] = work, device.collective(channel, exchange())
            return work

        return launch

    for name in rankscope_probe._COLLECTIVES:
        if hasattr(group_type, name) and name != "_end_coalescing":
            setattr(group_type, name, launched(getattr(group_type, name)))
    bindings.Work.wait = waiting
    simulate_operators(channel)


def simulate_operators(channel: Any) -> None:
    """Do the same for what is launched in C++: functional collectives and DDP's reducer."""
    library = torch.library.Library("c10d", "IMPL")
    select = torch._C.DispatchKey.BackendSelect

    def kernel_of(own: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(keys: Any, *arguments: Any) -> Any:
            result = own(keys.remove(select), *arguments)
            if not getattr(launching, "here", False):
                end = device.collective(channel, exchange())
                buckets.append(end)
                outputs = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
                for output in outputs:
                    ends[output.data_ptr()] = output, end
            return result

        return kernel

    for name in ("allreduce_", "_allgather_base_", "_reduce_scatter_base_"):
        overload = getattr(torch.ops.c10d, name).default
        library.impl(name, kernel_of(overload.redispatch), "BackendSelect", with_keyset=True)
    simulate_operators.library = library  # type: ignore[attr-defined]
    overload = torch.ops._c10d_functional.wait_tensor.default
    redispatch = overload.redispatch

    def waiting(keys: Any, tensor: torch.Tensor) -> Any:
        result = redispatch(keys, tensor)
        if tensor.data_ptr() in ends:
            device.stream().await_event(ends.pop(tensor.data_ptr())[1])
        return result

    overload.redispatch = waiting


def simulate_device() -> None:
    """Give code for any device the fake's streams and events."""
    cpu: Any = torch.cpu
    cpu.Stream, cpu.Event = device.cuda.Stream, device.cuda.Event
    cpu.current_stream = lambda index=None: device.stream()
    cpu.stream = device.on


class OnFake(rankscope_probe._Probe):
    """Takes what trains on the CPU for training on the fake device."""

    device = property(lambda probe: "cuda", lambda probe, value: None)  # type: ignore[assignment]


class FakeTorch:
    """Torch, but for its devices."""

    cuda = device.cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def start_probe() -> Any:
    device.cuda.amp = SimpleNamespace(GradScaler=torch.amp.GradScaler)
    rankscope_probe.time = clocks(device)  # type: ignore[attr-defined]
    rankscope_probe._FIRST_INTERVAL = 4
    rankscope_probe._StreamWaits.choose_interval = lambda waits: None  # type: ignore[method-assign]
    probe = OnFake(FakeTorch())
    probe.install()
    return probe


def prepared(kind: str, model: torch.nn.Sequential) -> torch.nn.Module:
    """Return a model that is divided among the ranks."""
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=torch.device("cpu")
        )
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer)
        return fully_shard(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    styles = (parallel.ColwiseParallel, parallel.RowwiseParallel)
    plan = {f"{number}.linear": styles[number % 2]() for number in range(LAYERS)}
    return parallel.parallelize_module(model, mesh, plan)


def runner(kind: str, model: torch.nn.Sequential) -> tuple[torch.nn.Module, Callable[..., None]]:
    """Return the model of this rank, and what runs forward and backward."""
    if kind == "pipeline":
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        rank, half = dist.get_rank(), LAYERS // 2
        part = model[rank * half : (rank + 1) * half]
        stage = PipelineStage(part, rank, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, 4, loss_fn=lambda out, _: out.square().mean())
        return part, lambda rows: schedule.step(rows) if rank == 0 else schedule.step(target=rows)
    whole = prepared(kind, model)

    def step(rows: torch.Tensor) -> None:
        loss = whole(rows).square().mean()
        if kind == "ddp":
            loss.backward()
            return
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()

    return whole, step


def simulate_reducer() -> None:
    """Have the end of backwards wait for the reducer's buckets, as it does in C++."""
    backward = torch.autograd.backward

    def waiting(*arguments: Any, **options: Any) -> None:
        backward(*arguments, **options)
        for end in buckets:
            device.stream().await_event(end)
        buckets.clear()

    torch.autograd.backward = waiting


def main(kind: str, seed: str, steps: str) -> None:
    dist.init_process_group("gloo")
    times.seed(int(seed) + dist.get_rank())
    simulate_device()
    simulate_groups()
    if kind == "ddp":
        simulate_reducer()
    probe = start_probe()
    torch.manual_seed(1)
    model, step = runner(kind, torch.nn.Sequential(*(Layer() for _ in range(LAYERS))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    copies, truths = device.cuda.Stream(0), []
    for rows, _ in zip(DataLoader(Rows(), batch_size=None), range(int(steps)), strict=False):
        with device.on(copies):
            device.kernel(times.uniform(0.5, 30.0), COPIES)
        device.stream().wait_stream(copies)
        step(rows)
        device.now = max(device.now, device.training.free)
        optimizer.step()
        truth = device.truth()
        truths.append((truth.peers, truth.copies))
        optimizer.zero_grad()
    probe.write_rest()
    print(json.dumps({"truths": truths, "records": written(probe.ring)}), flush=True)
    os._exit(0)  # what a fake of gloo's Works leaves behind does not matter


def written(ring: Any) -> list[list[int]]:
    """Return step, its parts, flags and copies of each record."""
    content, beside = Path(ring.path).read_bytes(), Path(ring.path[:-4] + "ext").read_bytes()
    found = []
    for number in range(ring.written):
        record = rankscope_probe._RECORD.unpack_from(content, 4096 + 64 * number)
        slot = rankscope_probe._EXTENSION.unpack_from(beside, 64 * (1 + number))
        copied = rankscope_probe._FOUR.unpack(slot[3])[2]
        found.append([record[6], *record[2:6], record[8], copied])
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
