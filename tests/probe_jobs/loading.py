"""Train with an input loader; usage: loading.py WHAT DIRECTORY.

How long each batch took to make, and by which worker, goes to a file of the worker's own.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

SECONDS = 0.03
STEPS = 160
LONG, MANY = "accumulated for long", 400
EACH = {"accumulated": 2, LONG: 80}
"""Batches of a step, one otherwise; 80 of them take longer than the probe's pause between looks."""

DIRECTORY = Path(sys.argv[2])


def made() -> torch.Tensor:
    """Make a batch, and write down how long that took."""
    begin = time.perf_counter()
    time.sleep(SECONDS)
    with (DIRECTORY / f"worker-{os.getpid()}.txt").open("a") as file:
        file.write(f"{time.perf_counter() - begin}\n")
    return torch.randn(4, 8)


class Samples(Dataset[torch.Tensor]):
    """Batches by number."""

    def __len__(self) -> int:
        return MANY

    def __getitem__(self, index: int) -> torch.Tensor:
        return made()


class Stream(IterableDataset[torch.Tensor]):
    """Batches one after another, without end."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield made()


def loader(what: str) -> DataLoader[torch.Tensor]:
    """Return the loader of a job."""
    if what == "alone":
        return DataLoader(Samples(), batch_size=None)
    if what == "spawned":
        # A spawned worker that still sends a batch while it ends can abort in torch's own code.
        return DataLoader(
            Samples(), batch_size=None, sampler=range(STEPS), num_workers=1,
            multiprocessing_context="spawn",
        )  # fmt: skip
    data = Stream() if what == "streamed" else Samples()
    return DataLoader(data, batch_size=None, num_workers=2)


def train(what: str) -> None:
    """Take batches, and step after each, or after several of them."""
    each = EACH.get(what, 1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = itertools.islice(loader(what), MANY if what == LONG else STEPS)
    for count, batch in enumerate(batches, start=1):
        model(batch).square().mean().backward()
        if count % each == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    if sys.argv[1] == "evaluated":
        with torch.no_grad():
            list(itertools.islice(loader("forked"), STEPS // 2))
    train(sys.argv[1])
