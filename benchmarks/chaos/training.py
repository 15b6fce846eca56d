"""What each rank of the matrix' jobs runs: `training.py FOLDER STEPS MILLISECONDS SLOW_RANK`.

Everything that it computes is determined by its arguments, so that the weights that it writes at
its end are the same bytes in every run. SIGTERM ends it after the step that all ranks are in.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

LIFETIME_SECONDS = 7200
SLOWER_SECONDS = 0.04


class Waiting(nn.Module):
    """A layer that takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the inputs later."""
        time.sleep(self.seconds)
        return inputs


def trained(steps: int, seconds: float, ended: list[int]) -> nn.Module:
    """Train until the steps are made, or any rank gets SIGTERM."""
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), Waiting(seconds)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = DataLoader(TensorDataset(torch.randn(256, 16)), batch_size=8)
    done = 0
    while True:
        for (inputs,) in data:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            done += 1
            endings = torch.tensor([float(len(ended))])
            dist.all_reduce(endings)
            if done == steps or endings.item():
                return model


def main() -> None:
    """Train, and write the weights."""
    signal.alarm(LIFETIME_SECONDS)  # even if nobody is left to end it
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    folder, steps, milliseconds, slow = sys.argv[1:]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seconds = float(milliseconds) / 1e3 + SLOWER_SECONDS * (rank == int(slow))
    model = trained(int(steps), seconds, ended)
    weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    Path(folder, f"weights-{rank}.bin").write_bytes(weights)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank} ended as pid {os.getpid()}\n")


main()
