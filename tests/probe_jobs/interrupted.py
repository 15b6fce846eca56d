"""Interrupt the probe at a line of its own, as Ctrl-C may in a notebook, and train on.

usage: interrupted.py backward | save | marked | look DIRECTORY
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist

import rankscope_probe

STEPS = 4
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter], lr=0.1)


def step() -> None:
    optimizer.zero_grad()
    (parameter * parameter).sum().backward()
    optimizer.step()


@contextmanager
def interrupt(code: CodeType, event: str) -> Iterator[None]:
    """Interrupt this thread when it enters or leaves a function, and go on where it was caught."""

    def traced(frame: FrameType, what: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code is code and what == event:
            sys.settrace(None)
            raise KeyboardInterrupt
        return traced if frame.f_code is code else None

    sys.settrace(traced)
    try:
        yield
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("nothing was interrupted")
    finally:
        sys.settrace(None)


def backward(directory: Path) -> None:
    """Interrupt what prepares a backward pass, which none of the next ones must be part of."""
    with interrupt(rankscope_probe._Backwards.arm.__code__, "call"):
        step()


def save(directory: Path) -> None:
    """Interrupt the beginning of a save, which none of the next ones must be part of."""
    with interrupt(rankscope_probe._Spans.begun.__code__, "return"):
        torch.save({}, directory / "interrupted.pt")
    torch.save({}, directory / "whole.pt")


def marked(directory: Path) -> None:
    """Likewise of what the program marks."""
    begun = rankscope_probe._Spans.begun.__code__
    with interrupt(begun, "return"), rankscope_probe.checkpoint(directory / "interrupted.pt"):
        raise AssertionError("it was interrupted before")
    torch.save({}, directory / "whole.pt")


def look(directory: Path) -> None:
    """Interrupt the start of the thread that looks up sizes, which a later one finds out."""
    with interrupt(threading.Thread.start.__code__, "call"):
        torch.save({}, directory / "interrupted.pt")
    torch.save({}, directory / "whole.pt")


WAYS = {way.__name__: way for way in (backward, save, marked, look)}

if __name__ == "__main__":
    if "MEETING" in os.environ:
        places = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        dist.init_process_group("gloo", init_method=os.environ["MEETING"], **places)
    for _ in range(STEPS):
        step()
    WAYS[sys.argv[1]](Path(sys.argv[2]))
    for _ in range(STEPS):
        step()
