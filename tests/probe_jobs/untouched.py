"""Two ranks that look, after some steps, at what the probe has left in torch; usage: untouched.py
loss."""

from __future__ import annotations

import io
import os
import sys
import warnings

import torch
import torch.distributed as dist

STEPS = 3


def loss() -> None:
    """Save a loss, and propagate back many times through one tensor."""
    parameter = train()
    squares = parameter * parameter
    for _ in range(5):
        torch.autograd.backward(squares, torch.ones(2), retain_graph=True)
    assert not squares._backward_hooks, squares._backward_hooks
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save({"loss": squares}, io.BytesIO())


def train() -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (parameter * parameter).sum().backward()
        optimizer.step()
    return parameter


WAYS = {"loss": loss}

if __name__ == "__main__":
    places = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", init_method=os.environ["MEETING"], **places)
    WAYS[sys.argv[1]]()
    dist.destroy_process_group()
