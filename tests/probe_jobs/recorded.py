"""Two ranks train until a file appears, with the Flight Recorder on; usage: recorded.py WAY STOP.

WAY is `ddp`, `fsdp2`, or `exit`, which ends as soon as the first record has been written.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DEADLINE_SECONDS = 50
SLOW_RANK = 1
BASE_SECONDS = 0.01
SLOW_SECONDS = 0.03
SETTLE_SECONDS = 0.2
WIDTH = 32


class Layer(torch.nn.Linear):
    """A layer that takes its time, and longer on the slow rank."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep((BASE_SECONDS + SLOW_SECONDS * (dist.get_rank() == SLOW_RANK)) / 2)
        return super().forward(batch)


def main() -> None:
    """Train."""
    way, stop = sys.argv[1:]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=world)
    layers = torch.nn.Sequential(Layer(WIDTH, WIDTH), Layer(WIDTH, WIDTH))
    if way == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in layers:
            fully_shard(layer)
        model = fully_shard(layers)
    else:
        model = DistributedDataParallel(module=layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    deadline = time.monotonic() + DEADLINE_SECONDS
    step, ended = 0, torch.zeros(1)
    while not ended.item():
        optimizer.zero_grad()
        model(torch.randn(4, WIDTH)).square().mean().backward()
        optimizer.step()
        step += 1
        if way == "exit" and step == 2:
            return
        ended.fill_(os.path.exists(stop) or time.monotonic() > deadline)  # noqa: PTH110
        if step % 8 == 0:
            dist.all_reduce(ended)  # both end after the same step
        else:
            ended.zero_()
    # A gloo thread takes the interpreter's lock to let go of the last tensor. Whoever then frees
    # the model, and with it the last reference to the group, joins that thread with the lock held:
    # without this pause 2 of 30 such jobs hung, with no probe in their way either.
    time.sleep(SETTLE_SECONDS)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
