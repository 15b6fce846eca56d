"""Train two ranks through phases of `STEPS` steps, each with one slow rank of known kind.

One optimizer over the parameters of all models ends every step, so that step numbers tell phases.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from phase_names import PHASES, SLOW_RANK, STEPS
from torch.distributed._functional_collectives import all_reduce, wait_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SLOW_SECONDS = 0.06
WIDTH = 256


class Rows(Dataset[torch.Tensor]):
    """Random rows; the first of every batch of 16 takes long on a slow rank."""

    def __init__(self, slow: bool) -> None:
        self.slow = slow

    def __len__(self) -> int:
        return 16 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.slow and index % 16 == 0:
            time.sleep(SLOW_SECONDS)
        return torch.randn(WIDTH)


class Sleepy(torch.nn.Module):
    """A model whose forward takes longer while it is slow."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*layers)
        self.slow = False

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.slow:
            time.sleep(SLOW_SECONDS)
        return self.layers(rows)


def linear(count: int) -> list[torch.nn.Module]:
    return [torch.nn.Linear(WIDTH, WIDTH) for _ in range(count)]


def batches(slow: bool = False) -> Iterator[torch.Tensor]:
    return iter(DataLoader(Rows(slow), batch_size=16))


class Job:
    """The models of all phases and the optimizer that they share."""

    def __init__(self) -> None:
        self.slow = False
        self.bare = Sleepy(*linear(2))
        small = Sleepy(*linear(2))
        many_buckets = Sleepy(*linear(8))
        with_buffers = Sleepy(*linear(1), torch.nn.BatchNorm1d(WIDTH), *linear(1))
        self.models = [self.bare, small, many_buckets, with_buffers]
        parameters = [p for model in self.models for p in model.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=1e-4)
        self.ddp = DistributedDataParallel(small)
        self.many_buckets = DistributedDataParallel(many_buckets, bucket_cap_mb=0.3)
        self.with_buffers = DistributedDataParallel(with_buffers, find_unused_parameters=True)

    def begin(self, slow: bool) -> None:
        self.slow = slow
        for model in self.models:
            model.slow = slow

    def end_step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def healthy(self) -> None:
        self.begin(False)
        self.train(self.many_buckets, batches())

    def slow_compute(self) -> None:
        self.train(self.many_buckets, batches())

    def slow_data(self) -> None:
        slow = self.slow
        self.begin(False)
        self.train(self.many_buckets, batches(slow))

    def slow_buffers(self) -> None:
        """Come late to the forward, where the others wait for the buffers."""
        slow = self.slow
        self.begin(False)
        for batch in batches():
            if slow:
                time.sleep(SLOW_SECONDS)
            self.with_buffers(batch).square().mean().backward()
            self.end_step()

    def train(self, model: torch.nn.Module, rows: Iterator[torch.Tensor]) -> None:
        for batch in rows:
            model(batch).square().mean().backward()
            self.end_step()

    def loss_reduced(self) -> None:
        for batch in batches():
            loss = self.ddp(batch).square().mean()
            loss.backward()
            dist.all_reduce(loss.detach())
            torch.nn.utils.clip_grad_norm_(self.ddp.parameters(), 1.0)
            self.end_step()

    def manual(self) -> None:
        for batch in batches():
            self.bare(batch).square().mean().backward()
            for parameter in self.bare.parameters():
                dist.all_reduce(parameter.grad)
            self.end_step()

    def manual_async(self) -> None:
        for batch in batches():
            self.bare(batch).square().mean().backward()
            grads = [parameter.grad for parameter in self.bare.parameters()]
            for work in [dist.all_reduce(grad, async_op=True) for grad in grads]:
                work.wait()
            self.end_step()

    def functional(self) -> None:
        for batch in batches():
            loss = self.bare(batch).square().mean()
            loss.backward()
            wait_tensor(all_reduce(loss.detach(), "sum", dist.group.WORLD))
            self.end_step()

    def barrier(self) -> None:
        for batch in batches():
            self.bare(batch).square().mean().backward()
            dist.monitored_barrier()
            self.end_step()

    def accumulated(self) -> None:
        """Reduce in both of a step's backwards; the first wait must not swallow what follows."""
        self.accumulate(contextlib.nullcontext)

    def accumulated_no_sync(self) -> None:
        self.accumulate(self.ddp.no_sync)

    def accumulate(self, first: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        for batch in batches():
            half = batch.chunk(2)
            with first():
                self.ddp(half[0]).square().mean().backward()
            self.ddp(half[1]).square().mean().backward()
            self.end_step()

    def evaluated(self) -> None:
        """Evaluate with a slow loader in every step: neither data nor sync of the training."""
        self.begin(False)
        unseen = batches(slow=True)
        for batch in batches():
            self.ddp(batch).square().mean().backward()
            with torch.no_grad():
                next(unseen)
            self.end_step()


def main() -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=os.environ["MEETING"], rank=rank, world_size=world_size
    )
    job = Job()
    for phase in PHASES:
        job.begin(rank == SLOW_RANK.get(phase, 1))
        getattr(job, phase)()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
