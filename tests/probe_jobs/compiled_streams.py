"""Compile code with waits while the probe's hooks are in place, or without the probe.

usage: compiled_streams.py with | without. Prints graph breaks and graphs of each program as JSON.

A CPU has no streams that compilers could trace: what is compiled here are functional collectives,
waited for by an operator, Works, and code with a graph break of its own. Code with
`torch.cuda.Stream` cannot be compiled without CUDA. Between calls the hooks go out and in again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["RANKSCOPE_PROBE"] = "0"
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.distributed import _functional_collectives as functional

import rankscope_probe
from fake_streams import Device


class FakeTorch:
    """Torch, but for its devices."""

    cuda = Device().cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def put_hooks_in() -> Any:
    guard = rankscope_probe._Guard(torch)
    waits = rankscope_probe._StreamWaits(FakeTorch(), dist, guard, False)
    waits.put_in()
    waits.noting = True
    return waits


def summed(value: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(value, "sum", dist.group.WORLD) * 2


def reduced(value: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(value)
    return value + 1


def waited(value: torch.Tensor) -> torch.Tensor:
    work = dist.all_reduce(value, async_op=True)
    value2 = value * 0 + 1
    work.wait()
    return value + value2


def broken(value: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return functional.all_reduce(value, "sum", dist.group.WORLD)


def counted(program: Any, fullgraph: bool, hooks: Any) -> dict[str, Any]:
    torch._dynamo.reset()
    counters.clear()
    compiled, shown = torch.compile(program, backend="aot_eager", fullgraph=fullgraph), ""
    try:
        for size in (2, 2, 2, 3):
            hooks.take_out()
            if size == 2:
                hooks.put_in()
            compiled(torch.ones(size))
    except Exception as error:  # noqa: BLE001 - which error it is, is compared
        shown = type(error).__name__
    breaks = sum(counters["graph_break"].values())
    return {"breaks": breaks, "graphs": counters["stats"]["unique_graphs"], "error": shown}


def main(probe: str) -> None:
    dist.init_process_group("gloo")
    hooks = put_hooks_in() if probe == "with" else SimpleNamespace(seen=0, put_in=int, take_out=int)
    programs = (summed, reduced, waited, broken)
    result = {
        f"{program.__name__} {fullgraph}": counted(program, fullgraph, hooks)
        for program in programs
        for fullgraph in (False, True)
    }
    print(json.dumps({"programs": result, "seen": hooks.seen}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
