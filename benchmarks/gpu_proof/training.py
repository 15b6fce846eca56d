"""One rank of two of a small job on one GPU, with a fault.

Collectives are few and large: two ranks share the GPU in time slices, so that both are slower than
on a GPU each. `--device cpu` runs the same loops on gloo, without a GPU.
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
FAULTS = ("healthy", "device", "host", "input", "copies")
SLOW_RANK = 1
SLOW_SECONDS = 0.04
WIDTH, LAYERS, BATCH = 2048, 4, 512
COPIED_MIB = 768
"""Bytes copied from ordinary memory on a separate stream: some 40 ms at 20 GB/s and less."""


class Workload:
    """A model of its kind, and what a step of it does."""

    def __init__(self, kind: str, device: Any, small: bool) -> None:
        import torch

        self.torch, self.device = torch, device
        self.width, self.batch = (64, 8) if small else (WIDTH, BATCH)
        layers = [torch.nn.Linear(self.width, self.width) for _ in range(LAYERS)]
        self.rank = torch.distributed.get_rank()
        self.model: Any = torch.nn.Sequential(*layers).to(device)
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
        plan = {str(number): styles[number % 2]() for number in range(LAYERS)}
        parallel.parallelize_module(self.model, mesh, plan)

    def prepare_pipeline(self) -> None:
        """Keep this rank's half of the layers, as a stage."""
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        half = LAYERS // 2
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


class Faulty:
    """What makes a rank slow, each step."""

    def __init__(self, fault: str, workload: Workload) -> None:
        self.fault, self.workload = fault, workload
        self.torch, self.device = workload.torch, workload.device
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu:
            self.copies = self.torch.cuda.Stream()
            self.square = self.torch.randn(4096, 4096, device=self.device)
            self.rounds = self.rounds_of(SLOW_SECONDS) if fault == "device" else 0
            size = COPIED_MIB << 20 if fault == "copies" else 1 << 20
            self.rows = self.torch.empty(size, dtype=self.torch.uint8)
            self.target = self.torch.empty(size, dtype=self.torch.uint8, device=self.device)

    def rounds_of(self, seconds: float) -> int:
        """Return how many matrix products keep the device busy for a given time."""
        for _ in range(3):
            self.square @ self.square
        self.torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            self.square @ self.square
        self.torch.cuda.synchronize()
        return max(1, round(20 * seconds / (time.perf_counter() - begin)))

    def before_forward(self) -> None:
        """Be slow on the device, on the host or in copies, as requested."""
        if self.on_gpu:
            with self.torch.cuda.stream(self.copies):
                self.target.copy_(self.rows, non_blocking=True)
            self.torch.cuda.current_stream().wait_stream(self.copies)
            for _ in range(self.rounds if self.fault == "device" else 0):
                self.square @ self.square
        if self.fault == "host" or (self.fault == "device" and not self.on_gpu):
            time.sleep(SLOW_SECONDS)


def loader(workload: Workload, fault: str, steps: int) -> Any:
    """Return batches from a loader that is slow if that is the fault."""
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return steps

        def __getitem__(self, number: int) -> Any:
            if fault == "input":
                time.sleep(SLOW_SECONDS)
            return workload.torch.randn(workload.batch, workload.width)

    return DataLoader(Rows(), batch_size=None)


def train(options: argparse.Namespace) -> dict[str, float]:
    """Train, and return the probe's cost."""
    import torch
    import torch.distributed as dist

    import rankscope_probe

    if options.budget:
        rankscope_probe._BUDGET = options.budget  # samples more often: runs are short
    device = torch.device("cuda:0" if options.device == "cuda" else "cpu")
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    torch.manual_seed(7)
    workload = Workload(options.kind, device, small=options.device == "cpu")
    fault = options.fault if dist.get_rank() == SLOW_RANK else "healthy"
    faulty = Faulty(fault, workload)
    optimizer = torch.optim.SGD(workload.model.parameters(), lr=1e-4)
    ended = time.monotonic() + options.seconds
    for number, rows in enumerate(loader(workload, fault, options.steps)):
        faulty.before_forward()
        workload.forward(rows.to(device))
        optimizer.step()
        optimizer.zero_grad()
        if number % 8 == 7 and is_over(ended, device):
            break
    time.sleep(options.linger)
    costs = own_costs(rankscope_probe._probe)
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    return costs


def is_over(ended: float, device: Any) -> bool:
    """Return True once the time of either rank is over, the same on both."""
    import torch
    import torch.distributed as dist

    over = torch.tensor([float(time.monotonic() > ended)], device=device)
    dist.all_reduce(over)
    return bool(over.item() > 0)


def own_costs(probe: Any) -> dict[str, float]:
    """Return the probe's own host seconds, and those of all steps, if it times stream waits."""
    waits = probe and probe.backwards.device_waits
    if not waits or not hasattr(waits, "own_ns"):
        return {}
    own = waits.own_ns + waits.sample_ns + waits.other_ns
    return {"own": own / 1e9, "all": (waits.all_ns + waits.lived_ns) / 1e9, "every": waits.every}


def main(words: Sequence[str]) -> int:
    """Be one rank; print the probe's costs as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--linger", type=float, default=0.0)
    parser.add_argument("--budget", type=float, default=0.0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    costs = train(parser.parse_args(words))
    target = os.environ.get("GPU_PROOF_COSTS")
    if target:
        Path(target).write_text(json.dumps(costs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
