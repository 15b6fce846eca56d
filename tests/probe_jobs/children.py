"""Train beside other processes.

usage: children.py fork-workers | spawn-workers | forkserver-workers | fork | exec | debugged
"""

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
    count = 2 if method == "fork" else 1  # others import torch again, in each
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


def become_another() -> None:
    """Train 5 steps, then become a program that knows nothing of torch."""
    train(5)
    os.execv(sys.executable, [sys.executable, "-c", "print('another program')"])


def debugged() -> None:
    """Train beside a worker server of one's own, as torch's debugging starts it."""
    from torch._C._distributed_c10d import _WorkerServer

    path = os.environ["RANKSCOPE_RING_DIR"] + "/debug.sock"
    server = _WorkerServer(path)
    train(5)
    handlers = [name for name in sys.modules if name.startswith("torch.distributed.debug")]
    print("serving", os.path.exists(path), server is not None, "imported", handlers)  # noqa: PTH110


ALONE = {"fork": fork, "exec": become_another, "debugged": debugged}

if __name__ == "__main__":
    if sys.argv[1] in ALONE:
        ALONE[sys.argv[1]]()
    else:
        workers(sys.argv[1].partition("-")[0])
