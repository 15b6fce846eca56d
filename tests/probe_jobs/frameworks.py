"""Two ranks, or four, train in one of the usual ways; usage: frameworks.py WAY SLOW_RANK.

WAY is one of `WAYS`; the slow rank, -1 for none, computes longer than the others in every step.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from ending import end_in_time, settle
from framework_steps import BEFORE_EXEC, FAIL_AT, OVERFLOW_EVERY, STEPS
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 3
BASE_SECONDS = 0.01
SLOW_SECONDS = 0.08
WIDTH = 64
STARVED_SECONDS = (
    9.0  # as long as it takes to tell a starved rank from an unlucky one, and half more
)
STARVED_STEPS = 60  # the least, where a busy machine makes each of them long
DOOMED_NODE = "doomed"
CROWD = 2  # programs that share the one CPU of a starved rank, and come before it
NICENESS = 10  # a tenth of their weight (sched_prio_to_weight in kernel/sched/core.c)
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(9999))"


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


def train(model: nn.Module, step: Callable[[], None] | None = None, steps: int = STEPS) -> None:
    """Run the usual loop, or its steps as given."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        if step is None:
            loss_of(model).backward()
        else:
            step()
        optimizer.step()


def ddp() -> None:
    train(DistributedDataParallel(Layers()))


def fsdp2() -> None:
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


def tensor_parallel() -> None:
    """Split each layer over all ranks, which then exchange activations in forward and backward."""
    train(
        split(Layers(), init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",)))
    )


def two_dimensions() -> None:
    """Split each layer over two ranks, and shard it over the pairs."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    train(fully_shard(split(Layers(), mesh["tp"]), mesh=mesh["dp"]))


def split(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def starved() -> None:
    """Compute on a CPU of one's own, which on the slow rank other programs want more."""
    rank, cpus = dist.get_rank(), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))

    optimizer = torch.optim.AdamW(model.parameters())
    slow = rank == int(sys.argv[2])
    with crowd(CROWD * slow):
        if slow:
            os.nice(NICENESS)
        else:
            come_first()
        left, end = torch.ones(1), time.monotonic() + STARVED_SECONDS
        for step in itertools.count(1):
            computed = time.thread_time() + BASE_SECONDS / 2
            while time.thread_time() < computed:
                pass
            loss_of(model).backward()
            left[0] = max(end - time.monotonic(), STARVED_STEPS - step)
            dist.broadcast(left, 0)  # all ranks end after the same step
            optimizer.step()
            if left <= 0:
                break


def come_first() -> None:
    """Keep a busy machine from making this process wait for a CPU, where that is allowed."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


@contextlib.contextmanager
def crowd(size: int) -> Iterator[None]:
    """Keep programs running on this process's CPUs."""
    programs = [subprocess.Popen([sys.executable, "-IS", "-c", SPIN]) for _ in range(size)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def scaler() -> None:
    """Scale the loss; where it overflows, the scaler leaves out the optimizer's step."""
    model = DistributedDataParallel(Layers())
    optimizer = torch.optim.AdamW(model.parameters())
    scaling = torch.amp.GradScaler("cpu")
    for number in range(STEPS):
        optimizer.zero_grad()
        last = number % OVERFLOW_EVERY == OVERFLOW_EVERY - 1
        overflow = float("inf") if last else 1.0
        scaling.scale(loss_of(model) * overflow).backward()
        scaling.step(optimizer)
        scaling.update()


def execs() -> None:
    """Train a little, then become another program, which trains under the same process number."""
    if len(sys.argv) == 3:
        train(DistributedDataParallel(Layers()), steps=BEFORE_EXEC)
        dist.barrier()
        os.environ["MEETING"] += "-again"
        os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
    train(DistributedDataParallel(Layers()))


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


def shrink() -> None:
    """Lose a node for good in the first attempt; the launcher goes on with the other's ranks."""
    model, launcher = DistributedDataParallel(Layers()), os.getppid()
    whole = dist.get_world_size() == 4
    done = 0

    def step() -> None:
        nonlocal done
        loss_of(model).backward()
        done += 1
        if whole and done == FAIL_AT and os.environ["NODE_NAME"] == DOOMED_NODE:
            os.kill(launcher, signal.SIGKILL)  # the launcher, which then tells nobody
            os.kill(os.getpid(), signal.SIGKILL)

    train(model, step)


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way
    for way in (
        ddp,
        fsdp2,
        manual,
        accumulation,
        two_optimizers,
        compiled,
        tensor_parallel,
        two_dimensions,
        starved,
        scaler,
        execs,
        elastic,
        shrink,
    )
}

if __name__ == "__main__":
    end_in_time()
    meeting = os.environ.get("MEETING", "env://")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    WAYS[sys.argv[1]]()
    settle()
    dist.destroy_process_group()
