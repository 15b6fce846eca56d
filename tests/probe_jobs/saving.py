"""Train for some steps and save, load and evaluate; usage: saving.py WHAT DIRECTORY.

What it did and for how long goes to a file of its own: one JSON object per line, times in seconds.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS = 12
SLOW_SECONDS = 0.2


class Slow:
    """Takes its time to be written, as a large model on a slow disk does."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(SLOW_SECONDS)
        return str, ("slow",)


class Deadly:
    """Ends its process in the middle of being written."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(SLOW_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
        return str, ("",)


class Job:
    """A model, its data, and a diary."""

    def __init__(self, directory: Path) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.directory = directory
        model = torch.nn.Linear(64, 64)
        self.model = DistributedDataParallel(model) if dist.is_initialized() else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.rows = TensorDataset(torch.randn(8 * STEPS, 64))
        self.diary = (directory / f"diary-{self.rank}.jsonl").open("a")
        self.between = lambda step: None

    @contextlib.contextmanager
    def told(self, kind: str, **what: Any) -> Iterator[None]:
        """Write down how long something took, and how it ended."""
        start, begin, outcome = time.time(), time.perf_counter(), "failed"
        try:
            yield
            outcome = "done"
        finally:
            seconds = time.perf_counter() - begin
            line = {"kind": kind, "start": start, "seconds": seconds, "outcome": outcome, **what}
            self.diary.write(json.dumps(line) + "\n")
            self.diary.flush()

    def path(self, name: str) -> Path:
        return self.directory / f"{name}-{self.rank}.pt"

    def save(self, name: str, extra: object = None) -> None:
        with self.told("checkpoint_save", name=name):
            torch.save({"model": self.model.state_dict(), "extra": extra}, self.path(name))

    def train(self, rows: Dataset[Any] | None = None, workers: int = 0) -> None:
        loader = DataLoader(rows or self.rows, batch_size=8, num_workers=workers)
        for step, (batch,) in enumerate(loader):
            self.update(batch)
            self.between(step)

    def update(self, batch: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        self.optimizer.step()


def plain(job: Job) -> None:
    """Resume, save every fourth step, fail once, and save into memory."""
    job.save("start")
    with job.told("checkpoint_load"):
        torch.load(job.path("start"))

    def between(step: int) -> None:
        if step % 4 == 3:
            job.save(f"step{step}", Slow())
        if step == 5:
            with contextlib.suppress(RuntimeError), job.told("checkpoint_save"):
                torch.save({}, job.directory / "nowhere" / "model.pt")
        if step == 6:
            with job.told("checkpoint_save"):
                torch.save(job.model.state_dict(), io.BytesIO())

    job.between = between
    job.train()


def by_hand(job: Job) -> None:
    """Save by means that nobody knows of, once in vain, and by torch.save within."""
    from rankscope_probe import checkpoint

    def between(step: int) -> None:
        target = job.directory / f"own-{step}.bin"
        if step in {2, 7}:
            with job.told("checkpoint_save"), checkpoint(target):
                time.sleep(SLOW_SECONDS)
                target.write_bytes(bytes(1000 + step))
        if step == 4:
            with contextlib.suppress(OSError), job.told("checkpoint_save"), checkpoint():
                raise OSError("the disk is full")
        if step == 9:
            with job.told("checkpoint_save"), checkpoint(job.directory):
                torch.save({}, job.path("within"))

    job.between = between
    job.train()


def evaluate(job: Job) -> None:
    """Evaluate twice in the middle, once to the end and once not, and save within the first."""

    def between(step: int) -> None:
        if step == 4:
            with torch.no_grad(), job.told("evaluation"):
                for number, (batch,) in enumerate(DataLoader(job.rows, batch_size=8)):
                    job.model(batch)
                    time.sleep(0.02)
                    if number == 5:
                        job.save("best")
        if step == 8:
            with torch.no_grad():
                for number, _ in enumerate(DataLoader(job.rows, batch_size=8)):
                    if number == 2:
                        break

    job.between = between
    job.train()


class Files(Dataset[Any]):
    """Samples that are files of torch's, as many data sets have them."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "sample.pt"

    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor]:
        return (torch.load(self.path),)


def samples(job: Job) -> None:
    """Load samples by torch.load, which are no checkpoints."""
    torch.save(torch.randn(64), job.directory / "sample.pt")
    job.train(Files(job.directory))


class FilesOfWorkers(Files):
    """The same, read by workers, which write down how many spans they have marked."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor]:
        from rankscope_probe import _probe

        sample = super().__getitem__(index)
        (self.path.parent / f"worker-{os.getpid()}").write_text(str(len(_probe.spans.early)))
        return sample


def samples_of_workers(job: Job) -> None:
    """Load samples by torch.load in workers."""
    torch.save(torch.randn(64), job.directory / "sample.pt")
    job.train(FilesOfWorkers(job.directory), workers=2)


class FilesAndMore(Files):
    """Samples for which something is looked up through another loader before they are read."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor]:
        next(iter(DataLoader(self.rows)))
        return super().__getitem__(index)

    rows = TensorDataset(torch.zeros(1))


def samples_of_nested(job: Job) -> None:
    """Load samples by torch.load after the end of a loader within."""
    torch.save(torch.randn(64), job.directory / "sample.pt")
    job.train(FilesAndMore(job.directory))


def samples_beside(job: Job) -> None:
    """Load samples in a thread, and a checkpoint while it does so."""
    torch.save(torch.randn(64), job.directory / "sample.pt")
    ready: queue.Queue[torch.Tensor] = queue.Queue(1)

    def load() -> None:
        for (batch,) in DataLoader(Files(job.directory), batch_size=8):
            ready.put(batch)

    job.update(torch.randn(8, 64))
    threading.Thread(target=load, daemon=True).start()
    for step in range(STEPS):
        job.update(ready.get())
        if step == 4:
            with job.told("checkpoint_load"):
                torch.load(job.directory / "sample.pt")


def samples_in_loop(job: Job) -> None:
    """Load a sample in each step, without a loader, and then a checkpoint."""
    path = job.directory / "sample.pt"
    torch.save(torch.randn(64), path)
    for step in range(2 * STEPS):
        job.update(torch.load(path) if step < STEPS else torch.randn(64))
    with job.told("checkpoint_load"):
        torch.load(path)
    job.update(torch.randn(64))


def distributed(job: Job) -> None:
    """Save by DCP, in the foreground and beside training, and load."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import load as restore

    state = {"model": job.model.state_dict()}
    pending = []
    beside = dist.new_group(backend="gloo")  # or its collectives meet those of training

    def between(step: int) -> None:
        if step == 4:
            with job.told("checkpoint_save"):
                dcp.save(state, checkpoint_id=job.directory / "first")
        if step == 5:
            with job.told("checkpoint_load"):
                restore(state, checkpoint_id=job.directory / "first")
        if step == 6:
            with job.told("checkpoint_staging"):
                second = job.directory / "second"
                pending.append(dcp.async_save(state, checkpoint_id=second, process_group=beside))
        if step == 8:
            pending.pop().result()
        if step == 9:
            # What DCP raises is no Exception.
            with contextlib.suppress(BaseException), job.told("checkpoint_load"):
                restore(state, checkpoint_id=job.directory / "nowhere")

    job.between = between
    job.train()


def killed(job: Job) -> None:
    """Die in the middle of the second checkpoint."""

    def between(step: int) -> None:
        if step == 4:
            job.save("good")
        if step == 7:
            torch.save({"deadly": Deadly()}, job.path("half"))

    job.between = between
    job.train()


def terminated(job: Job) -> None:
    """Save what there is when SIGTERM comes, and leave."""

    def leave(number: int, frame: object) -> None:
        job.save("last", Slow())
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    assert signal.getsignal(signal.SIGTERM) is leave

    def between(step: int) -> None:
        if step == 3:
            job.save("usual")
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    job.between = between
    job.train()
    raise AssertionError("SIGTERM did not come")


def waiting(job: Job) -> None:
    """Be in the middle of a checkpoint until a file is there."""

    class Waiting:
        def __reduce__(self) -> tuple[Any, ...]:
            while not (job.directory / "go").exists():
                time.sleep(0.01)
            return str, ("",)

    job.between = lambda step: job.save("slow", Waiting()) if step == 4 else None
    job.train()


def compiled(job: Job) -> None:
    """Compile the model, which takes place in the first step."""
    job.model = torch.compile(job.model, backend="eager")
    job.train()


JOBS = {
    job.__name__: job
    for job in (
        *(plain, by_hand, evaluate, samples, samples_of_workers),
        *(samples_of_nested, samples_beside, samples_in_loop),
        *(distributed, killed, terminated, waiting, compiled),
    )
}

if __name__ == "__main__":
    torch.manual_seed(0)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        meeting = os.environ.get("MEETING", "env://")
        places = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        dist.init_process_group("gloo", init_method=meeting, **places)
    JOBS[sys.argv[1]](Job(Path(sys.argv[2])))
