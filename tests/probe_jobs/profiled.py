"""Two DDP ranks under torch's profiler; usage: profiled.py FOLDER compute|data|none."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from profiled_steps import SLOW_RANK, SLOW_SECONDS, STEPS
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset


def slow_down(where: str) -> None:
    if sys.argv[2] == where and dist.get_rank() == SLOW_RANK:
        time.sleep(SLOW_SECONDS)


class Vectors(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8 * (STEPS + 2)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 8 == 0:
            slow_down("data")
        return torch.ones(64)


class Model(torch.nn.Sequential):
    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        slow_down("compute")
        return super().forward(batch)


def main() -> None:
    model = DistributedDataParallel(Model(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    cycle = schedule(wait=1, warmup=1, active=STEPS)
    traces = tensorboard_trace_handler(sys.argv[1], use_gzip=True)
    with profile(activities=[ProfilerActivity.CPU], schedule=cycle, on_trace_ready=traces) as run:
        for batch in DataLoader(Vectors(), batch_size=8):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            run.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=world)
    main()
