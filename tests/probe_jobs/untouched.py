"""Ranks that look, after some steps, at what the probe has left in torch; usage: untouched.py
loss | named | groups | inherited | sampled | compiled | traced."""

from __future__ import annotations

import inspect
import io
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

STEPS = 3


def train() -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (parameter * parameter).sum().backward()
        optimizer.step()
    return parameter


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


def named() -> None:
    """Pickle functions by their names, and ask for their arguments."""
    train()
    makes = torch.nn.parallel.DistributedDataParallel.__init__
    functions = (torch.save, torch.load, torch.autograd.backward, torch.compile)
    joins = (dist.init_process_group, dist.destroy_process_group)
    for function in (*functions, *joins):
        assert pickle.loads(pickle.dumps(function)) is function
        arguments = inspect.getfullargspec(function)
        assert arguments.varargs is None, function
        assert arguments.args, function
    assert inspect.getfullargspec(makes).args[:2] == ["self", "module"]
    assert "self" not in inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters


def groups() -> None:
    """Destroy many groups, and count the pauses."""
    train()
    everybody = [dist.new_group([0, 1]) for _ in range(6)]
    dist.all_reduce(torch.ones(1))
    pauses: list[float] = []
    sleep, time.sleep = time.sleep, pauses.append
    for group in everybody[:4]:
        dist.destroy_process_group(group)
    assert len(pauses) == 1, pauses
    dist.all_reduce(torch.ones(1), group=everybody[4])
    for group in everybody[4:]:
        dist.destroy_process_group(group)
    assert len(pauses) == 2, pauses
    time.sleep = sleep


class Incomplete(dist.Work):
    """One that leaves waiting to torch, as libraries' do that only say when it is done."""


def inherited() -> None:
    """Wait for a Work whose class does not override it: torch looks for that each time."""
    train()
    assert torch.ones(1).add(1).item() == 2
    waits_in_vain()


def waits_in_vain() -> None:
    work = Incomplete()
    error = raised(lambda: work.wait(timedelta(milliseconds=1)))
    assert "timed out" in str(error), error


def raised(call: Callable[[], Any]) -> RuntimeError | None:
    try:
        call()
    except RecursionError:
        raise
    except RuntimeError as error:
        return error
    return None


class Bare(dist.ProcessGroup):
    """A group of Python's with none of its collectives."""


def sampled() -> None:
    """The same while waits are bracketed, as in a sampled step on NCCL; and for collectives."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import rankscope_probe
    from fake_streams import Device

    class FakeTorch:
        cuda = Device().cuda

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    FakeTorch.cuda.synchronize = lambda: None
    guard = rankscope_probe._Guard(torch)
    waits = rankscope_probe._StreamWaits(FakeTorch(), dist, guard, False)
    waits.put_in()
    waits.noting = True
    waits_in_vain()
    group = Bare(0, 1)
    raised(lambda: group.allreduce([torch.ones(1)]))
    FakeTorch.cuda.synchronize()
    waits.noting = False
    waits.take_out()


def compiled() -> None:
    """Compile backward passes as a whole, in which no hook may queue a callback."""
    from torch._dynamo import compiled_autograd

    train()
    layer = torch.nn.Linear(2, 1)
    compiler = torch.compile(backend=lambda graph, inputs: graph.forward, fullgraph=True)
    for _ in range(STEPS):
        with compiled_autograd._enable(compiler):
            layer(torch.ones(3, 2)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[9.0, 9.0]]


class Doubled(torch.autograd.Function):
    """A function whose backward is the program's."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return doubled(gradient)


def doubled(gradient: torch.Tensor) -> torch.Tensor:
    return torch.sinh(gradient) * 0 + 2 * gradient


class Rows(Dataset[torch.Tensor]):
    """A data set that computes."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.cos(torch.ones(2) * number)


def traced() -> None:
    """Compile a loop, with what torch calls back in it: data sets and backward passes."""
    parameter = train()
    calls: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        calls.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    def loop(loader: DataLoader[torch.Tensor]) -> None:
        for batch in loader:
            torch._dynamo.graph_break()
            Doubled.apply(parameter * batch).sum().backward()

    torch.compile(loop, backend=backend)(DataLoader(Rows(), batch_size=2))
    for name in ("cos", "sinh"):
        assert any(f"built-in method {name} " in call for call in calls), (name, calls)


WAYS = {way.__name__: way for way in (loss, named, groups, inherited, sampled, compiled, traced)}

if __name__ == "__main__":
    places = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", init_method=os.environ["MEETING"], **places)
    WAYS[sys.argv[1]]()
    dist.destroy_process_group()
