"""One rank of two of a small job on one GPU, with a fault.

Two ranks share the GPU in time slices, so that both are slower than on a GPU each. The host runs up
to two steps ahead of the device, as most loops do: a fault of the host or of the input costs
something only where it outlasts what the device has to do. `--device cpu` runs the same loops on
gloo, without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

KINDS = ("ddp", "fsdp2", "tp", "pipeline")
FAULTS = ("healthy", "device", "host", "input", "copies", "hidden")
SLOW_RANK = 1
DEVICE_SECONDS, HOST_SECONDS, HIDDEN_SECONDS = 0.04, 0.15, 0.02
"""What a slow rank adds to each step: on its device, which the other one has to share; on its host;
and on its host where the device has enough to do meanwhile, so that it costs nothing."""

USUAL_SECONDS = 0.015
"""Kernels of every rank in each step, besides those of the model."""

WIDTH, LAYERS, BATCH = 1024, 4, 512
COPIED_MIB = 256
AHEAD_STEPS = 2


class Workload:
    """A model of its kind, and what a step of it does."""

    def __init__(self, kind: str, device: Any, width: int, layers: int) -> None:
        import torch

        self.torch, self.device = torch, device
        self.width, self.batch = (width, BATCH) if device.type == "cuda" else (64, 8)
        made = [torch.nn.Linear(self.width, self.width) for _ in range(layers)]
        self.rank = torch.distributed.get_rank()
        self.model: Any = torch.nn.Sequential(*made).to(device)
        self.forward: Callable[[Any], Any] = getattr(self, f"forward_{kind}", self.forward_whole)
        getattr(self, f"prepare_{kind}")()

    def prepare_ddp(self) -> None:
        """Replicate the model."""
        ids = [self.device.index] if self.device.type == "cuda" else None
        self.model = self.torch.nn.parallel.DistributedDataParallel(self.model, device_ids=ids)

    def prepare_fsdp2(self) -> None:
        """Shard each layer."""
        from torch.distributed.fsdp import fully_shard

        for layer in self.model:
            fully_shard(layer)
        fully_shard(self.model)

    def prepare_tp(self) -> None:
        """Split layers by columns and rows alternately."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import parallel

        mesh = init_device_mesh(self.device.type, (2,), mesh_dim_names=("tp",))
        styles = (parallel.ColwiseParallel, parallel.RowwiseParallel)
        plan: dict[str, parallel.ParallelStyle] = {
            str(number): styles[number % 2]() for number in range(len(self.model))
        }
        parallel.parallelize_module(self.model, mesh, plan)

    def prepare_pipeline(self) -> None:
        """Keep this rank's half of the layers, as a stage."""
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        half = len(self.model) // 2
        stage = self.model[self.rank * half : (self.rank + 1) * half]
        self.model = stage
        placed = PipelineStage(stage, self.rank, 2, self.device)
        self.schedule = ScheduleGPipe(placed, 4, loss_fn=lambda out, _: out.square().mean())

    def forward_whole(self, rows: Any) -> None:
        """Run forward and backward."""
        self.model(rows).square().mean().backward()

    def forward_pipeline(self, rows: Any) -> None:
        """Run a schedule of four micro-batches."""
        if self.rank == 0:
            self.schedule.step(rows)
        else:
            self.schedule.step(target=rows)


class Burden:
    """Kernels of every step, and what makes a rank slow."""

    def __init__(self, fault: str, workload: Workload) -> None:
        self.fault, self.torch, self.device = fault, workload.torch, workload.device
        self.kernels = self.copies = 0
        if self.device.type != "cuda":
            return
        self.side = self.torch.cuda.Stream()
        self.square = self.torch.randn(4096, 4096, device=self.device)
        self.rows = self.torch.empty(COPIED_MIB << 20, dtype=self.torch.uint8, pin_memory=True)
        self.target = self.torch.empty_like(self.rows, device=self.device)
        one_at_a_time(workload.rank, self.measure)

    def measure(self) -> None:
        """Find out how many kernels and copies take the time that they are to take."""
        more = DEVICE_SECONDS if self.fault == "device" else 0.0
        self.kernels = round((USUAL_SECONDS + more) / self.seconds_of(self.multiply))
        if self.fault == "copies":
            self.copies = round(DEVICE_SECONDS / self.seconds_of(self.copy))

    def seconds_of(self, work: Callable[[], None]) -> float:
        """Return how long the device takes for some work."""
        for count in (3, 20):
            self.torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                work()
            self.torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    def multiply(self) -> None:
        """Queue one kernel."""
        self.torch.mm(self.square, self.square)

    def copy(self) -> None:
        """Queue one copy to the device."""
        self.target.copy_(self.rows, non_blocking=True)

    def before_forward(self) -> None:
        """Do what this rank does in each step besides training."""
        if self.copies:
            self.side.wait_stream(self.torch.cuda.current_stream())  # or they hide behind a step
            with self.torch.cuda.stream(self.side):
                for _ in range(self.copies):
                    self.copy()
            self.torch.cuda.current_stream().wait_stream(self.side)
        for _ in range(self.kernels):
            self.multiply()
        if self.fault == "host" or (self.fault == "device" and not self.kernels):
            time.sleep(HOST_SECONDS)


def one_at_a_time(rank: int, work: Callable[[], None]) -> None:
    """Have ranks do something one after the other, while the others leave the device alone."""
    from torch.distributed import distributed_c10d

    store = distributed_c10d._get_default_store()
    for turn in (0, 1):
        if turn == rank:
            work()
            store.set(f"turn {turn}", "over")
        store.wait([f"turn {turn}"])


def on_two_streams(torch: Any) -> Callable[[Any, Any], Any]:
    """Return compiled code that waits for streams itself."""

    def doubled(rows: Any, side: Any) -> Any:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = rows * 2
        torch.cuda.current_stream().wait_stream(side)
        return result

    compiled: Callable[[Any, Any], Any] = torch.compile(doubled)
    return compiled


def loader(workload: Workload, fault: str, steps: int) -> Any:
    """Return batches from a loader that is slow if that is the fault."""
    from torch.utils.data import DataLoader, Dataset

    pause = {"input": HOST_SECONDS, "hidden": HIDDEN_SECONDS}.get(fault, 0.0)
    rows = workload.torch.randn(workload.batch, workload.width)
    if (
        workload.device.type == "cuda"
    ):  # or each copy would hold the host up until the device is there
        rows = rows.pin_memory()

    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return steps

        def __getitem__(self, number: int) -> Any:
            time.sleep(pause)
            return rows

    return DataLoader(Rows(), batch_size=None)


class Ahead:
    """Keeps the host at most `AHEAD_STEPS` steps ahead of the device, and the ranks together."""

    def __init__(self, workload: Workload, seconds: float) -> None:
        from torch.distributed import distributed_c10d

        self.store = distributed_c10d._get_default_store()
        self.rank, self.ends = workload.rank, time.monotonic() + seconds
        self.torch, self.events = workload.torch, list[Any]()
        self.on_gpu = workload.device.type == "cuda"

    def is_over(self, number: int) -> bool:
        """End a step; return True if it is the last one, of which rank 0 decides."""
        if self.on_gpu:
            self.events.append(self.torch.cuda.current_stream().record_event())
            if len(self.events) > AHEAD_STEPS:
                self.events.pop(0).synchronize()
        if number % 8 != 7:
            return False
        if self.rank == 0:
            self.store.set(f"over {number}", str(int(time.monotonic() > self.ends)))
        return bool(int(self.store.get(f"over {number}")))


def train(options: argparse.Namespace) -> dict[str, float]:
    """Train, and return the probe's cost."""
    import torch
    import torch.distributed as dist

    import rankscope_probe

    if options.every:
        rankscope_probe._FIRST_INTERVAL = options.every
        rankscope_probe._StreamWaits.choose_interval = lambda self: None  # type: ignore[method-assign]
    if options.budget:
        rankscope_probe._BUDGET = options.budget  # samples more often: runs are short
    device = torch.device("cuda:0" if options.device == "cuda" else "cpu")
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    torch.manual_seed(7)
    workload = Workload(options.kind, device, options.width, options.layers)
    fault = options.fault if dist.get_rank() == SLOW_RANK else "healthy"
    burden = Burden(fault, workload)
    optimizer = torch.optim.SGD(workload.model.parameters(), lr=1e-4)
    ahead = Ahead(workload, options.seconds)
    doubled = on_two_streams(torch) if options.compile == "streams" else None
    if options.compile:
        workload.model = torch.compile(workload.model)
    for number, rows in enumerate(loader(workload, fault, options.steps)):
        burden.before_forward()
        rows = rows.to(device, non_blocking=True)
        workload.forward(rows if doubled is None else doubled(rows, burden.side))
        optimizer.step()
        optimizer.zero_grad()
        if ahead.is_over(number):
            break
    print("trained", flush=True)
    time.sleep(options.linger)
    costs = own_costs(rankscope_probe._probe)
    if options.compile:
        costs |= compiled(torch)
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    return costs


def own_costs(probe: Any) -> dict[str, float]:
    """Return what the probe has spent on timing streams' waits, seconds; empty if it does not.

    `sample` and `between` are those of one sample and of one other step, since the interval between
    samples, `every`, was last chosen.
    """
    waits = probe and probe.backwards.device_waits
    if not waits or not hasattr(waits, "own_ns"):
        return {}
    own = waits.own_ns + waits.sample_ns + waits.other_ns
    return {
        "own": own / 1e9,
        "all": (waits.all_ns + waits.lived_ns) / 1e9,
        "every": waits.every,
        "sample": waits.sample_ns / max(waits.samples, 1) / 1e9,
        "between": waits.other_ns / max(waits.steps - 2 * waits.samples, 1) / 1e9,
        "step": waits.lived_ns / max(waits.steps, 1) / 1e9,
    }


def compiled(torch: Any) -> dict[str, int]:
    """Return how many graphs and frames have been compiled, and how often a graph broke."""
    counters = torch._dynamo.utils.counters
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "frames": counters["frames"]["total"],
        "breaks": sum(counters["graph_break"].values()),
    }


def main(words: Sequence[str]) -> int:
    """Be one rank; print the probe's costs as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--compile", choices=("model", "streams"))
    parser.add_argument("--linger", type=float, default=0.0)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--budget", type=float, default=0.0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    costs = train(parser.parse_args(words))
    target = os.environ.get("GPU_PROOF_COSTS")
    if target:
        Path(target).write_text(json.dumps(costs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
