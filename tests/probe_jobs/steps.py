"""Train a small model for some steps; optionally do something unkind to the ring half-way.

usage: steps.py STEPS [truncate | unlink | close | kill | hook | error | break-ring | break-hook]
"""

from __future__ import annotations

import glob
import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import rankscope_probe


class UserError(Exception):
    """What the job itself raises."""


def rings() -> list[str]:
    return glob.glob(os.environ["RANKSCOPE_RING_DIR"] + "/*.ring")  # noqa: PTH207


def refuse(*arguments: object, **options: object) -> None:
    raise UserError("raised on purpose")


def mischief(kind: str, optimizer: torch.optim.Optimizer) -> None:
    if kind == "truncate":
        os.truncate(rings()[0], 0)
    elif kind == "unlink":
        os.unlink(rings()[0])  # noqa: PTH108
    elif kind == "close":
        os.closerange(3, 4096)
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "hook":
        optimizer.register_step_post_hook(refuse)
    elif kind == "error":
        refuse()
    elif kind == "break-hook":
        rankscope_probe._probe.end_step = refuse  # type: ignore[union-attr, method-assign]


def main() -> None:
    steps, kind = int(sys.argv[1]), (sys.argv[2:] or [""])[0]
    if kind == "break-ring":
        rankscope_probe._open_ring = refuse  # type: ignore[assignment]
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(steps * 8, 4), torch.randn(steps * 8, 2)), 8)
    for step, (inputs, wanted) in enumerate(loader):
        if step == steps // 2:
            mischief(kind, optimizer)
        optimizer.zero_grad()
        (model(inputs) - wanted).square().mean().backward()
        optimizer.step()
    print("weights", [round(float(value), 6) for value in model.weight.detach().flatten()])


if __name__ == "__main__":
    main()
