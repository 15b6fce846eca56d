"""Train beside other processes; usage: children.py fork-workers | spawn-workers | fork."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

MODEL = torch.nn.Linear(4, 2)


def train(steps: int) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    for _ in range(steps):
        MODEL(torch.randn(8, 4)).sum().backward()
        optimizer.step()


def workers(method: str) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(80, 4))
    count = 2 if method == "fork" else 1
    for (inputs,) in DataLoader(data, 8, num_workers=count, multiprocessing_context=method):
        MODEL(inputs).sum().backward()
        optimizer.step()


def fork() -> None:
    """Train 5 steps, then 7 more in a forked child and none here; start a program as well."""
    train(5)
    child = os.fork()
    if child == 0:
        train(7)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    subprocess.run([sys.executable, "-c", "pass"], check=True)


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        fork()
    else:
        workers(sys.argv[1].partition("-")[0])
