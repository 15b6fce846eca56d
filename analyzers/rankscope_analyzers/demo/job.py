"""The training job of the demo: ordinary DistributedDataParallel, with one rank made slow.

Run by torchrun, or with `--ranks` alone. It does not import Rankscope: the probe is loaded through
PYTHONPATH.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

BATCH = 16
WIDTH = 64
LAYERS = 4
"""A small model: parts of a step that matter here are those that wait."""
LOADING_SECONDS = 0.004
"""Seconds for reading a batch on every rank: storage that answers in a few milliseconds."""

HANGS_AT, HANGS_SECONDS = 120, 3600.0
"""The step at which the rank of the fault `hang` enters no collective any longer."""

FAULT_SECONDS = 0.030
"""Additional seconds of the slow rank, about half of a healthy step."""


class Batches(Dataset[torch.Tensor]):
    """Random batches that take as long to read as from real storage."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count = count
        self._seconds = seconds

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self._count:
            raise IndexError(index)
        time.sleep(self._seconds)
        return torch.randn(BATCH, WIDTH)


class Throttled(nn.Module):
    """Compute that takes longer than it should, as on a GPU whose clock was lowered.

    The host waits for it, as it does for kernels, so that all ranks fit on a few cores.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return `values` after the time that the throttling costs."""
        time.sleep(self._seconds)
        return values


def forked(ranks: int, train: Callable[[str], None]) -> int:
    """Train in a process for each rank, forked from this one; return 0 if all ended well.

    PyTorch is imported once: torchrun would import it in itself and in every rank, which takes a
    core some seconds each time. They meet in a file, as a port may be taken before it is used.
    """
    descriptor, meeting = tempfile.mkstemp(prefix="rankscope-demo-")
    os.close(descriptor)
    parent = os.getpid()
    try:
        return _forked(ranks, lambda: train(f"file://{meeting}"))
    finally:
        if os.getpid() == parent:  # a rank that ends comes here as well, while others train
            Path(meeting).unlink(missing_ok=True)


def _forked(ranks: int, train: Callable[[], None]) -> int:
    torch.optim.SGD([torch.zeros(1)])  # imports what the first optimizer of a process imports
    gc.freeze()  # or each rank ends by collecting 290,000 objects
    pids = set[int]()
    for rank in map(str, range(ranks)):
        pid = os.fork()
        if pid == 0:
            os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
            os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(ranks))
            train()
            return 0
        pids.add(pid)
    ended_well = [_ended_well(pids) for _ in range(ranks)]
    return 0 if all(ended_well) else 1


def _ended_well(pids: set[int]) -> bool:
    """Wait until one of the ranks has ended; end the others if it failed."""
    pid, status = os.wait()
    pids.remove(pid)
    if status:
        for other in pids:
            os.kill(other, signal.SIGKILL)  # what waits in a collective heeds nothing else
    return not status


def main() -> int:
    """Train for a number of steps on gloo; return 0, or 1 if a rank failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--fault", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, help="to start; default: torchrun has started them")
    options = parser.parse_args()
    if options.ranks:
        return forked(options.ranks, lambda meeting: train(options, meeting))
    train(options)
    return 0


def train(options: argparse.Namespace, meeting: str = "") -> None:
    """Train as one rank, which meets the others at a URL, or where torchrun has it meet them."""
    if meeting:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    else:
        dist.init_process_group("gloo")
    slow = FAULT_SECONDS if dist.get_rank() == options.rank else 0.0
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    if options.fault == "slow-compute":
        layers.insert(0, Throttled(slow))
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loading = LOADING_SECONDS + (slow if options.fault == "slow-data" else 0.0)
    stuck = options.fault == "hang" and dist.get_rank() == options.rank
    for step, batch in enumerate(DataLoader(Batches(options.steps, loading), batch_size=None)):
        if stuck and step == HANGS_AT:
            time.sleep(HANGS_SECONDS)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
