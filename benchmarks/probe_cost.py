"""Cost of the probe in a training process: one ring write, and a whole step with and without it.

Ring writes alternate with prometheus_client's `Histogram.labels(...).observe(...)`; they are of
steps of 30 ms, of which each 34th writes the extensions of all. Steps are those of a small two-rank
DistributedDataParallel job on this machine; both ranks switch the probe on and off together every
`BLOCK` steps, so that neighbouring blocks see the same noise. Costs of a step are CPU time of the
training thread: the probe never waits, and wall time on a busy machine does. The probe's cost is
the median over the blocks; it is given with the standard error of that median.
"""

from __future__ import annotations

import json
import math
import operator
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

PROBE = Path(__file__).parents[1] / "agent" / "probe"
BLOCK = 12  # steps: short compared with changes of the machine's load
SETTLING = 2  # steps of a block that switching makes more expensive, with the probe and without
PAIRS = 200
REPEATS = 200
CALLS = 200
JOB_SECONDS = 480


@dataclass(frozen=True, slots=True)
class WriteCost:
    """Medians of one call, in nanoseconds, measured alternately.

    Args:
        record: a whole `record()` of the probe: arithmetic, packing, and the write.
        write: checking that the descriptor is still ours, packing 64 bytes, and `os.pwrite`.
        observe: prometheus_client's `Histogram.labels(...).observe(...)`, as most programs call it.
    """

    record: float
    write: float
    observe: float


@dataclass(frozen=True, slots=True)
class StepCost:
    """Medians over paired blocks, in microseconds per step of the small job.

    Args:
        wall: wall time of a step without the probe.
        step: the training thread's CPU time of such a step.
        without_collectives: the probe's cost if it times no collectives, as with NCCL.
        without_error: standard error of that.
        with_collectives: its cost if it times collectives and waits for CPUs, as on gloo.
        with_error: standard error of that.
    """

    wall: float
    step: float
    without_collectives: float
    without_error: float
    with_collectives: float
    with_error: float


def call_ns(call: Callable[[], object]) -> float:
    """Return the mean time of `CALLS` calls in a row."""
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - begin) / CALLS


def alternately(*calls: Callable[[], object]) -> list[float]:
    """Return each call's median time, with the calls alternating."""
    rounds = [[call_ns(call) for call in calls] for _ in range(REPEATS)]
    return [median(column) for column in zip(*rounds, strict=True)]


def write_cost(directory: str) -> WriteCost:
    """Measure one ring write in this process; does not need torch."""
    sys.path.insert(0, str(PROBE))
    from prometheus_client import CollectorRegistry, Histogram

    import rankscope_probe

    registry = CollectorRegistry()
    histogram = Histogram("step_seconds", "Time.", ["job_id", "rank"], registry=registry)
    probe = bare_probe(rankscope_probe, directory)
    begin, step_ns, data_ns = 1_700_000_000_000_000_000, 30_000_000, 4_000_000

    def write() -> None:
        probe.ring.write(begin, step_ns, data_ns, 20_000_000, 6_000_000, 7, 32, 2, 1_000_000, -1, 1)

    def observe() -> None:
        histogram.labels("research/llama", "3").observe(0.03)

    return WriteCost(*alternately(lambda: probe.record(30_000_000, 0, 1_000_000), write, observe))


def bare_probe(module: Any, directory: str) -> Any:
    """Return a probe with a ring and no hooks."""
    probe = object.__new__(module._Probe)
    probe.ring = module._Ring(directory, "none", None, 0)
    probe.clock = module._StepClock(SimpleNamespace(autograd=None))
    probe.clock.begin(0, time.time_ns())
    probe.clock.backwards = 1
    probe.clock.data_ns, probe.clock.sync_ns = 4_000_000, 6_000_000
    probe.loader = SimpleNamespace(used=True, workers=SimpleNamespace(code=0))
    probe.backwards = SimpleNamespace(device_waits=None)
    probe.step, probe.timing = 0, 2
    return probe


def unwrapped(function: Any) -> Any:
    """Return the functions that the probe, and torch for it, has wrapped."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


class Switch:
    """Removes an installed probe from a process and reinstalls it, for paired blocks.

    It must be created before the first step, while torch's own functions are still in place.
    """

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        import rankscope_probe

        if rankscope_probe._probe is None:
            raise RuntimeError("this process has no probe")
        self.probe = rankscope_probe._probe
        self.steps: dict[Any, Any] = optimizer._global_optimizer_post_hooks
        self.kept_steps = dict(self.steps)
        self.iterator: Any = dataloader._BaseDataLoaderIter
        self.watched_next = self.iterator.__next__
        waits = (torch._C._distributed_c10d.Work, torch._C.Future)
        wait_functions = [*((owner, "wait") for owner in waits), (dist, "_broadcast_coalesced")]
        self.wait_functions = [*wait_functions, (torch.autograd, "backward")]
        self.own = [unwrapped(getattr(owner, name)) for owner, name in self.wait_functions]
        self.watched: list[Any] = []
        self.timing = 0

    def keep(self) -> None:
        """Remember what the probe has installed, once its first step is done."""
        self.watched = [getattr(owner, name) for owner, name in self.wait_functions]
        self.timing = self.probe.timing

    def off(self) -> None:
        """Leave training as it is without the probe."""
        self.steps.clear()
        self.iterator.__next__ = unwrapped(self.watched_next)
        self._locate(self.own)
        for library in self.probe.gloo.libraries:
            library._destroy()
        self.probe.gloo.libraries.clear()

    def on(self, collectives: bool) -> None:
        """Reinstall the hooks, those that time collectives only on request.

        Kernels of operators are left out: no job here calls those operators.
        """
        self.steps.update(self.kept_steps)
        self.iterator.__next__ = self.watched_next
        self._locate(self.watched)
        self.probe.backwards.timed = collectives
        self.probe.timing = self.timing if collectives else 0
        self.probe.clock.cpu.restart()
        if collectives:
            self.probe.clock.cpu.watch()
        else:
            for (owner, name), own in list(zip(self.wait_functions, self.own, strict=True))[:-1]:
                setattr(owner, name, own)

    def _locate(self, functions: list[Any]) -> None:
        for (owner, name), function in zip(self.wait_functions, functions, strict=True):
            setattr(owner, name, function)


def train_paired(rank: int, meeting: str) -> None:
    """Be one rank of the small job and print its median costs as JSON."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    switch = Switch()
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(6)]), bucket_cap_mb=0.2
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = TensorDataset(torch.randn(16 * BLOCK, 128))

    def block_us(clock: Callable[[], int] = time.thread_time_ns) -> float:
        stamps = []
        for (batch,) in DataLoader(rows, batch_size=16):
            stamps.append(clock())
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        steps = [after - before for before, after in pairwise(stamps)]
        return median(steps[SETTLING:]) / 1e3

    block_us()
    switch.keep()
    switch.off()
    walls = [block_us(time.perf_counter_ns) for _ in range(PAIRS // 8)]
    bare, watched = [block_us()], []
    for pair in range(2 * PAIRS):
        switch.on(collectives=pair % 2 == 1)
        watched.append(block_us())
        switch.off()
        bare.append(block_us())
    dist.barrier()
    if rank == 0:
        around = [(before + after) / 2 for before, after in pairwise(bare)]
        costs = list(map(operator.sub, watched, around))
        added = [*median_and_error(costs[::2]), *median_and_error(costs[1::2])]
        print(json.dumps([median(walls), median(bare), *added]))
    dist.destroy_process_group()


def median_and_error(values: list[float]) -> tuple[float, float]:
    """Return the median and its standard error, from the quartiles, as outliers are common.

    The quartiles of a normal distribution are 1.349 standard deviations apart; the standard error
    of its median is sqrt(pi / 2) times that of its mean.
    """
    low, middle, high = quantiles(values, n=4)
    return middle, (high - low) / 1.349 * math.sqrt(math.pi / 2 / len(values))


def step_cost(directory: str) -> StepCost:
    """Run the small job and return what its first rank measured.

    Raises:
        subprocess.CalledProcessError: a rank failed.
    """
    return StepCost(*run_pair("benchmarks.probe_cost", "train_paired", directory))


def run_pair(module: str, function: str, directory: str) -> list[float]:
    """Run two ranks of a function and return what the first one prints.

    Raises:
        subprocess.CalledProcessError: a rank failed.
    """
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROBE), str(Path(__file__).parents[1])]),
        "RANKSCOPE_RING_DIR": directory,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    code = f"from {module} import {function} as run; run({{}}, 'file://{directory}/meeting')"
    commands = [[sys.executable, "-c", code.format(rank)] for rank in (0, 1)]
    peer = subprocess.Popen(commands[1], env=variables, stdout=subprocess.DEVNULL)
    try:
        shown = subprocess.check_output(commands[0], env=variables, timeout=JOB_SECONDS)
    finally:
        peer.kill()
        peer.wait()
    return [float(value) for value in json.loads(shown)]


def memory_directory() -> str | None:
    """Return a tmpfs for rings, if there is one: disks write in their own time."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


def measure() -> tuple[WriteCost, StepCost]:
    """Measure both costs, on a tmpfs if there is one."""
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        writes = write_cost(directory)
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        return writes, step_cost(directory)


def report(costs: tuple[WriteCost, StepCost]) -> str:
    """Write the figures and the goals."""
    writes, steps = costs
    rows = (
        ("one ring write: check, pack, pwrite", writes.write, "ns"),
        ("one record, arithmetic included", writes.record, "ns"),
        ("prometheus_client labels().observe()", writes.observe, "ns"),
        ("ring write / observe, goal at most 1.0", writes.write / writes.observe, "x"),
        ("step of a small 2-rank job, wall time", steps.wall, "us"),
        ("the same in CPU time of its thread", steps.step, "us"),
        ("probe per step, goal at most 40", steps.without_collectives, "us"),
        ("    standard error", steps.without_error, "us"),
        ("probe per step with 3 collectives timed", steps.with_collectives, "us"),
        ("    standard error", steps.with_error, "us"),
    )
    return "\n".join(f"{name:42} {value:10.2f} {unit}" for name, value, unit in rows)


if __name__ == "__main__":
    print(report(measure()))
