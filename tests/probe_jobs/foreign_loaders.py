"""Train with a loader that is not torch's; usage: foreign_loaders.py HOW.

HOW is how batches are loaded: by MODULE.CLASS.METHOD of a library, of which only the names are
there, or by the program itself: `unmarked`, `marked`, `marked DataLoader`, `failing`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader

import rankscope_probe

SECONDS, STEPS, SAMPLES = 0.01, 12, 8


def load() -> Iterator[torch.Tensor]:
    """Give batches, each after some time."""
    for _ in range(STEPS):
        time.sleep(SECONDS)
        yield torch.randn(SAMPLES, 8)


def failing() -> Iterator[torch.Tensor]:
    """End with an error of the program's own."""
    yield from load()
    raise OSError("the dataset is gone")


def of_library(place: str) -> Iterable[Any]:
    """Return the loader of a library that has been imported; its methods may be inherited."""
    module, owner, method = place.rsplit(".", 2)
    base = type("Base", (), {"__init__": lambda self: setattr(self, "batches", load())})
    if method == "__next__":
        base.__next__ = lambda self: next(self.batches)  # type: ignore[attr-defined]
        base.__iter__ = lambda self: self  # type: ignore[attr-defined]
    else:
        base.__iter__ = lambda self: load()  # type: ignore[attr-defined]
    kind = type(owner, (base,), {})
    sys.modules[module] = ModuleType(module)
    setattr(sys.modules[module], owner, kind)
    made: Iterable[Any] = kind()
    return made


def loader(how: str) -> Iterable[Any]:
    """Return what the training loop is over."""
    own = {
        "unmarked": load,
        "marked": lambda: rankscope_probe.batches(load()),
        "marked DataLoader": lambda: rankscope_probe.batches(DataLoader(list(load()), None)),
        "failing": lambda: rankscope_probe.batches(failing()),
    }
    return own[how]() if how in own else of_library(how)


def main(how: str) -> None:
    """Take a step for each batch."""
    batches = loader(how)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    taken = 0
    try:
        for batch in batches:
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            taken += 1
    except OSError as error:
        print(error)
    assert taken == STEPS


if __name__ == "__main__":
    main(sys.argv[1])
