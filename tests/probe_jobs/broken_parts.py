"""Train while parts of the probe fail whenever they are called; usage: broken_parts.py NAME...

They are broken before the probe is started, and called at each step instead of once in a while.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import rankscope_probe

STEPS = 130
BATCH = 8


def failing(part: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(part)
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("raised on purpose")

    return fail


def break_parts(names: list[str]) -> None:
    for name in names:
        owner: Any = rankscope_probe
        *path, last = name.split(".")
        for each in path:
            owner = getattr(owner, each)
        setattr(owner, last, failing(getattr(owner, last)))
    for pause in ("_LOOK_NS", "_WORKERS_LOOK_NS", "_SIGNAL_NS"):
        setattr(rankscope_probe, pause, 0)


def train() -> None:
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(STEPS * BATCH, 4), torch.randn(STEPS * BATCH, 2))
    validation = DataLoader(TensorDataset(torch.randn(2, 4)), 2)
    for inputs, wanted in DataLoader(data, BATCH):
        optimizer.zero_grad()
        loss = (model(inputs) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        rankscope_probe.loss(loss.item())
        with torch.no_grad():
            for (batch,) in validation:
                model.module(batch)


def train_by_program() -> None:
    """End each step by a call that gives amounts which are none."""
    for _ in range(STEPS):
        rankscope_probe.step(samples="many", tokens="even more")  # type: ignore[arg-type]


if __name__ == "__main__":
    break_parts(sys.argv[1:])
    rankscope_probe.watch()
    if "RANK" in os.environ:
        places = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        dist.init_process_group("gloo", init_method=os.environ["MEETING"], **places)
        train()
        dist.destroy_process_group()
    else:
        train_by_program()
