"""A job of which rank 1 fails at its third step, in the way that its argument names."""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist


def fail(way: str) -> None:
    if way == "exception":
        raise ValueError("sample 17 is damaged")
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(3)  # sys.exit would let gloo's threads abort the process now and then


def main(way: str) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for step in range(100):
        if rank == 1 and step == 3:
            fail(way)
        dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main(sys.argv[1])
