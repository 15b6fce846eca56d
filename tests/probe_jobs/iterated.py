"""Propagate several losses back at once, which an iterator gives; ends with 1 if one got lost."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

STEPS = 4

if __name__ == "__main__":
    places = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", init_method=os.environ["MEETING"], **places)
    first, second = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = torch.optim.SGD([first, second], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward((n * one).sum() for n, one in ((3, first), (5, second)))
        assert [one.grad.item() for one in (first, second)] == [3.0, 5.0]
        optimizer.step()
    dist.destroy_process_group()
