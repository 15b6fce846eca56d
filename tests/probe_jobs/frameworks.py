"""Two ranks train in one of the usual ways; usage: frameworks.py WAY SLOW_RANK.

WAY is one of `WAYS`; the slow rank, -1 for none, computes longer than the other in every step.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 48
MICRO_BATCHES = 3
BASE_SECONDS = 0.01
SLOW_SECONDS = 0.05
WIDTH = 64
DEADLINE_SECONDS = 60
FAIL_AT = 20  # the step in which the first attempt of the elastic job breaks


class Layers(nn.Sequential):
    """A model whose forward takes its time, and longer on the slow rank."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))
        self.share = share

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        compute(self.share)
        return super().forward(batch)


def compute(share: float = 1.0) -> None:
    slow = dist.get_rank() == int(sys.argv[2])
    time.sleep(share * (BASE_SECONDS + SLOW_SECONDS * slow))


def loss_of(model: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return model(torch.randn(8, WIDTH)).square().mean()


def train(model: nn.Module, step: Callable[[], None] | None = None) -> None:
    """Run the usual loop, or its steps as given."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        if step is None:
            loss_of(model).backward()
        else:
            step()
        optimizer.step()


def ddp() -> None:
    train(DistributedDataParallel(Layers()))


def fsdp2() -> None:
    from torch.distributed.fsdp import fully_shard

    model = Layers()
    for layer in model:
        fully_shard(layer)
    train(fully_shard(model))


def manual() -> None:
    model = Layers()

    def step() -> None:
        loss_of(model).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    train(model, step)


def accumulation() -> None:
    model = DistributedDataParallel(Layers(1 / MICRO_BATCHES))

    def step() -> None:
        for micro_batch in range(MICRO_BATCHES):
            last = micro_batch == MICRO_BATCHES - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss_of(model).backward()

    train(model, step)


def two_optimizers() -> None:
    """Update two models in turns, as a GAN does."""
    models = [DistributedDataParallel(Layers(0.5)) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for _ in range(STEPS):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()


def compiled() -> None:
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))))
    fast = torch.compile(model, backend="aot_eager")

    def step() -> None:
        compute()  # outside: compiled code may not sleep
        loss_of(fast).backward()

    train(model, step)


def elastic() -> None:
    """Break in the first attempt; the launcher starts all ranks again."""
    model = DistributedDataParallel(Layers())
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    done = 0

    def step() -> None:
        nonlocal done
        loss_of(model).backward()
        done += 1
        if first and done == FAIL_AT and dist.get_rank() == 0:
            raise RuntimeError("broken on purpose")

    train(model, step)


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way
    for way in (ddp, fsdp2, manual, accumulation, two_optimizers, compiled, elastic)
}

if __name__ == "__main__":
    signal.alarm(DEADLINE_SECONDS)  # a launcher that is killed leaves its ranks behind
    meeting = os.environ.get("MEETING", "env://")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    WAYS[sys.argv[1]]()
    dist.destroy_process_group()
