"""Train for some steps and hand losses over; usage: signalling.py WHAT DIRECTORY.

What it handed over goes to a file of its own as one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import rankscope_probe

STEPS = 30


class Unasked(torch.Tensor):
    """A loss that must not be asked for its value, as one that is on a device."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__):
            raise AssertionError("a device was waited for")
        return super().__torch_function__(func, types, args, kwargs or {})

    def item(self) -> Any:
        raise AssertionError("a device was waited for")


class Said:
    """What a job says of itself, kept for the test."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "said.json"
        self.losses: list[float] = []
        self.more: dict[str, Any] = {}

    def close(self) -> None:
        self.path.write_text(json.dumps({"losses": self.losses, **self.more}))


def model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    made = torch.nn.Linear(8, 1)
    return made, torch.optim.SGD(made.parameters(), lr=0.01)


def tensors(said: Said) -> None:
    """Hand every loss over as a tensor that is part of a graph; two are not finite."""
    module, optimizer = model()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        said.losses.append(loss.item())
        handed = loss.as_subclass(Unasked)
        if step in {11, 12}:
            handed, said.losses[-1] = handed * float("nan"), float("nan")
        rankscope_probe.loss(handed)
    said.more["weights"] = [one.tolist() for one in module.parameters()]


def elsewhere(said: Said) -> None:
    """Train with another default device, and hand over the first loss in inference mode."""
    torch.set_default_device("meta")
    with torch.device("cpu"):
        module, optimizer = model()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(torch.ones(4, 8, device="cpu")).square().mean()
        loss.backward()
        optimizer.step()
        said.losses.append(loss.item())
        with torch.inference_mode(step == 0):
            rankscope_probe.loss(loss.as_subclass(Unasked))


def plain(said: Said) -> None:
    """Hand losses over as they are, of several types and shapes, and use them again at once."""
    module, optimizer = model()
    made = (torch.Tensor.clone, torch.Tensor.double, torch.Tensor.bfloat16)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        handed = made[step % 3](loss.detach() if step % 2 else loss)
        said.losses.append(handed.item())
        rankscope_probe.loss(handed.reshape(1, 1) if step % 5 == 4 else handed)
        handed.detach().mul_(1000)
        rankscope_probe.loss(torch.zeros(2))  # no loss


def numbers(said: Said) -> None:
    """Hand losses over as NumPy has them, and arrays of it that are none."""
    import numpy

    module, optimizer = model()
    made = (numpy.float32, numpy.float64, numpy.array, numpy.float16)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        handed = made[step % 4](loss.item())
        said.losses.append(float(handed))
        rankscope_probe.loss(handed)
        rankscope_probe.loss(numpy.zeros(2))


def silent(said: Said) -> None:
    """Train as `tensors` does, and hand nothing over."""
    rankscope_probe.loss = lambda value: None
    tensors(said)


def sharded(said: Said) -> None:
    """Read from file after file, two in a step; what one holds makes all later losses NaN."""
    module, optimizer = model()
    for step in range(STEPS):
        rankscope_probe.shards(f"/data/train-{step // 10}.tar", f"s3://set/aux-{step // 10}.tar")
        optimizer.zero_grad()
        loss = module(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        rankscope_probe.loss((loss * (1.0 if step < 19 else float("nan"))).as_subclass(Unasked))


def marked(said: Said) -> None:
    """End steps by a line of the program, two optimizer steps in each."""
    module, optimizer = model()
    for step in range(STEPS):
        for _ in range(2):
            optimizer.zero_grad()
            module(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        time.sleep(0.005)
        rankscope_probe.loss(1.0 / (step + 1))
        rankscope_probe.learning_rate(0.5 / (step + 1))
        rankscope_probe.epoch((step + 1) / 4)
        rankscope_probe.step(samples=4, tokens=32)
        said.losses.append(1.0 / (step + 1))


def scaled(said: Said) -> None:
    """Let a scaler skip two updates."""
    module, optimizer = model()
    scaler = torch.amp.GradScaler("cpu")
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(torch.randn(4, 8)).square().mean()
        scaler.scale(loss * (float("inf") if step in {5, 6} else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()


class Deadly(Dataset[Any]):
    """Samples of which one ends the worker that fetches it."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 60:
            time.sleep(0.5)  # until all others have been handed over
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(8)


def workers(said: Said) -> None:
    """Lose one loader worker, and go on with another loader."""
    module, optimizer = model()
    for rows in (Deadly(), [torch.randn(8)] * 40):
        loader = DataLoader(rows, batch_size=4, num_workers=1)
        with contextlib.suppress(RuntimeError):
            for batch in loader:
                optimizer.zero_grad()
                module(batch).square().mean().backward()
                optimizer.step()


def abandoned(said: Said) -> None:
    """Leave loaders early, one of which lost a worker of which the program heard nothing."""
    module, optimizer = model()
    for lost in (False, True, False):
        batches = iter(DataLoader([torch.randn(8)] * 400, batch_size=4, num_workers=2))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else torch raises what it died of
        optimizer.zero_grad()
        module(next(batches)).square().mean().backward()
        optimizer.step()
        if lost:
            worker = batches._workers[1]  # type: ignore[attr-defined]
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
        del batches


def odd(said: Said) -> None:
    """Hand over what is no loss, and go on."""
    module, optimizer = model()
    handed = (None, "text", torch.randn(3), torch.randn(1, device="meta"), object(), True, 2)
    for value in (*handed, *handed):
        optimizer.zero_grad()
        module(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        rankscope_probe.loss(value)
        rankscope_probe.learning_rate("fast")
        with rankscope_probe.phase("unheard of"):
            pass


def compiled(said: Said) -> None:
    """Hand losses over within what is compiled."""
    module, optimizer = model()

    def forward(batch: torch.Tensor) -> torch.Tensor:
        loss = module(batch).square().mean()
        rankscope_probe.loss(loss)
        return loss

    run = torch.compile(forward, backend="eager")
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = run(torch.randn(4, 8))
        loss.backward()
        optimizer.step()
        said.losses.append(loss.item())


def saving(said: Said) -> None:
    """Save into one directory, a file for each step, one of them over and over."""
    module, optimizer = model()
    for step in range(8):
        optimizer.zero_grad()
        module(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if step % 2:
            torch.save(module.state_dict(), said.path.parent / f"step_{step}.pt")
            rankscope_probe._probe.store.looked_ns = -(1 << 62)  # look at each of them


def hung(said: Said) -> None:
    """Save to a mount that no longer answers: whoever asks for sizes there stands for good."""
    ask, here = os.stat, threading.get_ident()
    said.more.update(asked=[], answered=0)

    def stat(path: Any, **options: Any) -> Any:
        if str(path).endswith("slow.pt"):
            said.more["asked"].append(threading.get_ident() == here)
            time.sleep(60)
            said.more["answered"] += 1
        return ask(path, **options)

    os.stat = os.statvfs = stat
    module, optimizer = model()
    for _ in range(40):
        optimizer.zero_grad()
        module(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        torch.save(module.state_dict(), said.path.parent / "slow.pt")
    said.more["threads"] = threading.active_count()


JOBS = {
    job.__name__: job
    for job in (
        tensors,
        elsewhere,
        plain,
        numbers,
        silent,
        sharded,
        marked,
        scaled,
        workers,
        abandoned,
        odd,
        compiled,
        saving,
        hung,
    )
}

if __name__ == "__main__":
    diary = Said(Path(sys.argv[2]))
    JOBS[sys.argv[1]](diary)
    diary.close()
