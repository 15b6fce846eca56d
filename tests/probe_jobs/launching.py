"""Take steps, then start two processes and wait for them; take steps again.

usage: launching.py processes | context [idle]

Each of the two, a rank unless it is to be idle, prints whether this process's ring is held.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

import rankscope_probe

IDLE_SECONDS, LONGEST_SECONDS = 0.5, 60.0


def train(steps: int) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()


def is_held(ring: Path) -> bool:
    with ring.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def child(rank: int, meeting: str, parents: Path, idle: bool) -> None:
    """Print whether the parent's ring is held, once it is not any longer or time is over."""
    if not idle:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    until = time.monotonic() + (IDLE_SECONDS if idle else LONGEST_SECONDS)
    while is_held(parents) and time.monotonic() < until:
        time.sleep(0.01)
    os.write(1, b"held\n" if is_held(parents) else b"free\n")
    if not idle:
        dist.barrier()
        dist.destroy_process_group()


def main(way: str, idle: bool) -> None:
    rankscope_probe._CHILD_LOOK_SECONDS = 0.1
    train(3)
    (parents,) = Path(os.environ["RANKSCOPE_RING_DIR"]).glob(f"{os.getpid()}-*.ring")
    with tempfile.TemporaryDirectory() as folder:
        known = (f"file://{folder}/meeting", parents, idle)
        if way == "context":
            torch.multiprocessing.start_processes(child, known, 2, start_method="fork")
        else:
            forked = multiprocessing.get_context("fork")
            started = [forked.Process(target=child, args=(rank, *known)) for rank in range(2)]
            for one in started:
                one.start()
            for one in started:
                one.join()
            assert [one.exitcode for one in started] == [0, 0]
    train(5)


if __name__ == "__main__":
    main(sys.argv[1], "idle" in sys.argv)
