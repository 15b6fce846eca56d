"""The probe's cost for a step of 300 collectives, as fully_shard makes of a model of 100 layers.

Two gloo ranks switch the probe on and off together every `BLOCK` steps. Such a step waits for each
of its collectives in Python, which the probe times on gloo; on NCCL it does not. Costs are CPU time
of the training thread.
"""

from __future__ import annotations

import json
import operator
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.probe_cost import Switch, memory_directory, run_pair

LAYERS = 100  # each gathered in forward and in backward, and its gradients scattered
WIDTH = 64
BLOCK = 5  # steps
PAIRS = 10


@dataclass(frozen=True, slots=True)
class FsdpCost:
    """Medians over paired blocks; times in microseconds of the training thread.

    Args:
        collectives: that a step launches.
        wall: wall time of a step without the probe.
        step: CPU time of such a step.
        probe: what the probe adds.
    """

    collectives: float
    wall: float
    step: float
    probe: float


def train_sharded(rank: int, meeting: str) -> None:
    """Be one rank of the job and print its costs as JSON."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    switch = Switch()
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(8, WIDTH)

    def block_us(clock: str) -> float:
        stamps: list[int] = []
        for _ in range(BLOCK + 1):
            stamps.append(getattr(time, clock)())
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return median(after - before for before, after in pairwise(stamps)) / 1e3

    block_us("perf_counter_ns")
    switch.keep()
    switch.off()
    group: Any = dist.distributed_c10d._get_default_group()  # torch declares only a part of it
    before = group._get_sequence_number_for_group()
    wall = median(block_us("perf_counter_ns") for _ in range(3))
    launched = (group._get_sequence_number_for_group() - before) / (3 * (BLOCK + 1))
    bare, watched = [block_us("thread_time_ns")], []
    for _ in range(PAIRS):
        switch.on(collectives=True)
        watched.append(block_us("thread_time_ns"))
        switch.off()
        bare.append(block_us("thread_time_ns"))
    around = [(before + after) / 2 for before, after in pairwise(bare)]
    costs = list(map(operator.sub, watched, around))
    dist.barrier()
    if rank == 0:
        print(json.dumps([launched, wall, median(bare), median(costs)]))
    dist.destroy_process_group()


def measure() -> FsdpCost:
    """Run the job, on a tmpfs where there is one."""
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        return FsdpCost(*run_pair("benchmarks.fsdp_cost", "train_sharded", directory))


def report(cost: FsdpCost) -> str:
    """Write the figures and the goal."""
    rows = (
        ("collectives of a step", cost.collectives, ""),
        ("step, wall time", cost.wall / 1e3, "ms"),
        ("the same in CPU time of its thread", cost.step / 1e3, "ms"),
        ("probe per step", cost.probe, "us"),
        ("probe per collective", cost.probe / cost.collectives, "us"),
        ("probe / step, wall, goal at most 1", 100 * cost.probe / cost.wall, "%"),
        ("probe / step, CPU, goal at most 1", 100 * cost.probe / cost.step, "%"),
    )
    return "\n".join(f"{name:42} {value:10.2f} {unit}" for name, value, unit in rows)


if __name__ == "__main__":
    print(report(measure()))
