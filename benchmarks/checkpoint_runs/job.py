"""Train on gloo and keep a diary of events; usage: job.py first|second|storage DIRECTORY.

The diary is a file of JSON objects, one per line, written before and after each action, so that it
shows what the process was doing when it was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import rankscope_probe

RANK = int(os.environ["RANK"])
SAVE_SECONDS, USUAL_SECONDS, SLOW_SECONDS = 2.0, 0.4, 2.4
STEP_SECONDS = 0.01


class Slow:
    """Takes long to be written."""

    def __init__(self, seconds: float, *, deadly: bool = False) -> None:
        self.seconds, self.deadly = seconds, deadly

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(self.seconds)
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return str, ("slow",)


class Job:
    """A model, its optimizer and a diary."""

    def __init__(self, folder: Path, attempt: str, rate: float) -> None:
        self.folder = folder
        self.diary = (folder / f"{attempt}-{RANK}.jsonl").open("w")
        self.model = DistributedDataParallel(torch.nn.Linear(64, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)

    def tell(self, what: str, **more: Any) -> None:
        """Write a line."""
        self.diary.write(json.dumps({"what": what, **more}) + "\n")
        self.diary.flush()

    @contextlib.contextmanager
    def diary_lines(self, what: str, name: str) -> Iterator[None]:
        """Write when something begins, how it ended and how long it took."""
        self.tell(f"{what}-began", name=name)
        begin, outcome = time.perf_counter(), "failed"
        try:
            yield
            outcome = "done"
        finally:
            self.tell(what, outcome=outcome, seconds=time.perf_counter() - begin, at=time.time())

    def save(self, name: str, extra: object = None, what: str = "save") -> None:
        """Write a checkpoint."""
        with self.diary_lines(what, name):
            torch.save({"model": self.model.state_dict(), "extra": extra}, self.folder / name)

    def step(self, batch: torch.Tensor, *, hand_over: bool = True, factor: float = 1.0) -> None:
        """Train one step, and report its loss and tokens."""
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        time.sleep(STEP_SECONDS)
        self.optimizer.step()
        if hand_over:
            rankscope_probe.loss(loss * factor)
            self.tell("loss", value=loss.item() * factor)


def batches(count: int, size: int, workers: int = 0) -> DataLoader[Any]:
    """Return a loader of `count` batches."""
    return DataLoader(
        TensorDataset(torch.randn(count * size, 64)), batch_size=size, num_workers=workers
    )


def first(folder: Path) -> None:
    """Save successfully and unsuccessfully, twice to one path, and die in the middle of a write."""
    job = Job(folder, "first", 0.01)
    for step, (batch,) in enumerate(batches(110, 8)):
        job.step(batch, hand_over=RANK != 0)  # the second that SIGKILL loses is tested elsewhere
        if RANK == 0 and step in {20, 40, 60}:
            job.save(f"step_{step}.pt", Slow(SAVE_SECONDS))
        if step == 70:
            with contextlib.suppress(RuntimeError):
                job.save("nowhere/model.pt")
        if step == 80:
            job.save("both.pt", Slow(SAVE_SECONDS))
        if RANK == 0 and step == 100:
            time.sleep(1.5)
            job.save("cut_off.pt", Slow(SAVE_SECONDS, deadly=True))


def second(folder: Path) -> None:
    """Resume with larger batches, diverge, lose a worker, and save on SIGTERM."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ending.append(number))
    job = Job(folder, "second", 0.005)
    (folder / "bad.pt").write_bytes(b"no checkpoint")
    for name in ("bad.pt", "step_60.pt"):
        with contextlib.suppress(Exception), job.diary_lines("load", name):
            torch.load(folder / name, weights_only=True)
    for step, (batch,) in enumerate(batches(60, 16)):
        job.step(batch, factor=float("nan") if step in {10, 30, 31} else 1.0)
    lose_a_worker(job)
    dist.barrier()
    (folder / f"ready-{RANK}").touch()
    deadline = time.monotonic() + 120
    while not ending and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(RuntimeError):
        name = "emergency.pt" if RANK == 0 else "nowhere/emergency.pt"  # rank 1 unsuccessfully
        job.save(name, Slow(SAVE_SECONDS) if RANK == 0 else None, what="emergency")
    for (batch,) in batches(20, 16):
        job.step(batch)
    for (batch,) in batches(3, 16):  # values are written at the end of a step, once a second
        time.sleep(1.2)
        job.step(batch, hand_over=False)
    (folder / f"done-{RANK}").touch()
    time.sleep(120)


def lose_a_worker(job: Job) -> None:
    """Have a loader worker killed, and continue without it."""
    loader = iter(batches(400, 16, workers=2))
    next(loader)
    if RANK == 0:
        os.kill(loader._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        try:
            for _ in loader:
                time.sleep(0.01)
        except (RuntimeError, OSError):  # by the handler of SIGCHLD, or from the broken pipe
            job.tell("worker-died")


def storage(folder: Path) -> None:
    """Save every 25 steps, finally to a storage that has become six times as slow."""
    job = Job(folder, "storage", 0.01)
    for number in range(10**6):
        for (batch,) in batches(25, 8):
            job.step(batch)
        if RANK == 0:
            job.save("step.pt", Slow(USUAL_SECONDS if number < 12 else SLOW_SECONDS))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    with contextlib.suppress(RuntimeError):  # its peer is gone
        {"first": first, "second": second, "storage": storage}[sys.argv[1]](Path(sys.argv[2]))
