"""Training loops as people write them, each until it is ended from outside; usage: loops.py NAME.

They know nothing of Rankscope. `injected_fault` makes them slow if a test requires that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import injected_fault
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset

WIDTH = int(injected_fault.SETTINGS.get("width", 128))
BATCH = int(injected_fault.SETTINGS.get("batch", 16))
MICRO_BATCHES = int(injected_fault.SETTINGS.get("micro_batches", 3))
WORKERS = int(injected_fault.SETTINGS.get("workers", 0))
NOISE = random.Random(injected_fault.RANK)  # noqa: S311 - noise, no secret


class Device(nn.Module):
    """Compute that takes the time of a device's kernels."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values, later."""
        injected_fault.compute(self.share)
        return values


class Samples(Dataset[torch.Tensor]):
    """Batches that are read from a storage."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        injected_fault.load()
        return torch.randn(BATCH, WIDTH)


class Streamed(IterableDataset[torch.Tensor]):
    """The same as a stream."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            injected_fault.load()
            yield torch.randn(BATCH, WIDTH)


def network(share: float = 1.0, layers: int = 3) -> nn.Sequential:
    """Return a model."""
    return nn.Sequential(Device(share), *(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def batches() -> Iterator[torch.Tensor]:
    """Yield batches by torch's loader."""
    data = Streamed() if injected_fault.SETTINGS.get("stream") else Samples()
    loader = DataLoader(data, batch_size=None, num_workers=WORKERS)
    return itertools.chain.from_iterable(itertools.repeat(loader))


def loss_of(model: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
    """Return a loss."""
    return model(batch).square().mean()


def gradient_of(values: torch.Tensor) -> torch.Tensor:
    """Return what the backward pass has left for a tensor."""
    if values.grad is None:
        raise ValueError("no backward pass has reached the tensor")
    return values.grad


def after(step: int, model: nn.Module) -> None:
    """Evaluate, and do what else follows a step."""
    if injected_fault.evaluates(step):
        with torch.no_grad():
            injected_fault.evaluate()
            model.eval()
            model.train()
    injected_fault.after(step)


def ddp() -> None:
    """DistributedDataParallel with a loader, clipping and a logged loss."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            dist.all_reduce(loss.detach())
        if (
            injected_fault.SETTINGS.get("barrier")
            and (step + 1) % injected_fault.CHECKPOINT_EVERY == 0
        ):
            after(step, model)
            dist.barrier()
        else:
            after(step, model)


def plain() -> None:
    """DistributedDataParallel without a loader."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in itertools.count():
        optimizer.zero_grad()
        loss_of(model, torch.randn(BATCH, WIDTH)).backward()
        optimizer.step()
        after(step, model)


def normalized() -> None:
    """Layers with statistics that are synchronised by DistributedDataParallel."""
    layers = [m for _ in range(4) for m in (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))]
    model = DistributedDataParallel(nn.Sequential(Device(), *layers))
    optimizer = torch.optim.AdamW(model.parameters())
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        after(step, model)


def accumulation() -> None:
    """Several micro-batches before gradients are exchanged."""
    model = DistributedDataParallel(network(1 / MICRO_BATCHES))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = batches()
    for step in itertools.count():
        optimizer.zero_grad()
        for number in range(MICRO_BATCHES):
            last = number == MICRO_BATCHES - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss_of(model, next(loader)).backward()
        optimizer.step()
        after(step, model)


def sharded() -> None:
    """FSDP2."""
    model = network()
    for layer in list(model)[1:]:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        after(step, model)


def tensor_parallel() -> None:
    """Layers that are split over all ranks."""
    _split_over(init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",)), None)


def two_dimensions() -> None:
    """Layers that are split over two ranks, and sharded over the pairs."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    _split_over(mesh["tp"], mesh["dp"])


def _split_over(tensor: DeviceMesh, data: DeviceMesh | None) -> None:
    plan = {"1": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(network(), tensor, plan)
    if data is not None:
        fully_shard(model, mesh=data)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in itertools.count():
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss_of(model, torch.randn(BATCH, WIDTH)).backward()
        optimizer.step()
        after(step, model)


def by_hand() -> None:
    """Gradients are averaged by hand."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        after(step, model)


def pipeline() -> None:
    """Each rank holds a stage; activations and gradients are sent from one to the next."""
    group, rank, last = None, dist.get_rank(), dist.get_world_size() - 1
    if not injected_fault.SETTINGS.get("unnamed"):
        group = init_device_mesh("cpu", (last + 1,), mesh_dim_names=("pp",)).get_group()
    model = network(1 / MICRO_BATCHES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in itertools.count():
        optimizer.zero_grad()
        for _ in range(MICRO_BATCHES):
            received = torch.randn(BATCH, WIDTH, requires_grad=True)
            if rank > 0:
                with torch.no_grad():
                    dist.recv(received, rank - 1, group=group)
            made = model(received)
            if rank < last:
                dist.send(made.detach(), rank + 1, group=group)
                gradient = torch.empty_like(made)
                dist.recv(gradient, rank + 1, group=group)
                made.backward(gradient)
            else:
                made.square().mean().backward()
            if rank > 0:
                dist.send(gradient_of(received), rank - 1, group=group)
        optimizer.step()
        after(step, model)


def stages() -> None:
    """The same by torch's own schedule, over the default group."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    parts = max(MICRO_BATCHES, last + 1)
    model = network(1 / parts)
    stage = PipelineStage(model, rank, last + 1, torch.device("cpu"))
    schedule = Schedule1F1B(stage, parts, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in itertools.count():
        optimizer.zero_grad()
        inputs = [torch.randn(parts * BATCH, WIDTH)] if rank == 0 else []
        schedule.step(*inputs, target=torch.zeros(parts * BATCH, WIDTH))
        optimizer.step()
        after(step, model)


def local_sgd() -> None:
    """Every rank trains by itself and averages its weights with the others in every n-th step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    every = int(injected_fault.SETTINGS.get("exchange_every", 10))
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        if step % every == every - 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()
        after(step, model)


def sequences() -> None:
    """Sequences of every length, dealt at random: each rank is sometimes the slowest."""
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))))
    optimizer = torch.optim.AdamW(model.parameters())
    spread = float(injected_fault.SETTINGS.get("spread", 0.1))
    for step in itertools.count():
        optimizer.zero_grad()
        injected_fault.compute(max(0.2, NOISE.gauss(1.0, spread)))
        loss_of(model, torch.randn(BATCH, WIDTH)).backward()
        optimizer.step()
        after(step, model)


def uneven() -> None:
    """Batches of a size of each rank's own; compute follows the size."""
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))))
    optimizer = torch.optim.AdamW(model.parameters())
    sizes = injected_fault.SETTINGS["sizes"]
    size = sizes[injected_fault.RANK % len(sizes)]

    def repeated(batch: Any) -> torch.Tensor:  # one sample: torch declares the list of other sizes
        return cast("torch.Tensor", batch).repeat(size, 1)

    loader = DataLoader(Samples(), batch_size=None, collate_fn=repeated)
    for step, batch in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
        optimizer.zero_grad()
        injected_fault.compute(len(batch) / BATCH / 4)
        loss_of(model, batch).backward()
        optimizer.step()
        after(step, model)


def adversarial() -> None:
    """Two models that are updated alternately."""
    models = [DistributedDataParallel(network(0.5)) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for step, batch in enumerate(batches()):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        after(step, models[0])


def local() -> None:
    """Every rank trains alone and synchronises with the others every eighth step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        if step % 8 == 7:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()
        after(step, model)


def growing() -> None:
    """Batches that grow, as some recipes have it: steps take longer and nothing is wrong."""
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in itertools.count():
        scale = 1 + min(step // 100, 3)
        rows = cast("Dataset[torch.Tensor]", [torch.randn(scale * BATCH, WIDTH)])
        loader = DataLoader(rows, batch_size=None)
        for batch in loader:
            optimizer.zero_grad()
            injected_fault.compute(scale / 2)
            loss_of(model, batch).backward()
            optimizer.step()
        after(step, model)


def profiled() -> None:
    """A profiler that records a few steps now and then."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.profiler.schedule(wait=40, warmup=2, active=3, repeat=0)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda _: None) as profiler:
        for step, batch in enumerate(batches()):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            after(step, model)
            profiler.step()


def without_optimizer() -> None:
    """Weights are changed by hand; nothing marks where a step ends."""
    model = DistributedDataParallel(network())
    for step, batch in enumerate(batches()):
        loss_of(model, batch).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(1e-3 * gradient_of(parameter))
                parameter.grad = None
        after(step, model)


LOOPS: dict[str, Callable[[], None]] = {
    loop.__name__: loop
    for loop in (
        ddp, plain, normalized, accumulation, sharded, tensor_parallel, two_dimensions, by_hand,
        pipeline, stages, local_sgd, sequences, uneven, adversarial, local, growing, profiled,
        without_optimizer,
    )
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    time.sleep(float(injected_fault.SETTINGS.get("late", 0)) * (rank == world - 1))
    LOOPS[sys.argv[1]]()
