"""Short jobs of two or four ranks; usage: distributed.py torchrun | tidy | exit | killed |
compiled | stages | pipelined | tensor | busy | stepless | late-step | stepless-for-long |
few-backwards | left | renumbered | used-again | sharded-scaler | with-cuda."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 10


def train(model: torch.nn.Module, steps: int = STEPS) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return optimizer


def torchrun() -> None:
    import user_module  # on the user's own PYTHONPATH

    train(DistributedDataParallel(torch.nn.Linear(4, 2)))
    os.write(1, f"user module says {user_module.WORD}\n".encode())  # whole, both ranks write here
    dist.destroy_process_group()


def tidy() -> None:
    train(DistributedDataParallel(torch.nn.Linear(4, 2)))
    dist.destroy_process_group()


def exit_during_collective() -> None:
    """End while gloo's threads still work: nothing but the probe waits for them."""
    train(DistributedDataParallel(torch.nn.Linear(4, 2)))
    dist.all_reduce(torch.ones(1 << 16), async_op=True)


def without_steps(most: int = 0) -> None:
    """Update parameters by hand, in a loop that no optimizer sees, until that is noticed."""
    import rankscope_probe

    rankscope_probe._STEPLESS_NS = 50_000_000
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(most or rankscope_probe._STEPLESS_BACKWARDS + 4):
        model(torch.randn(8, 4)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        time.sleep(0.005)


def without_steps_for_long() -> None:
    without_steps(10_000)


def few_backwards() -> None:
    model = torch.nn.Linear(4, 2)
    for _ in range(100):
        model(torch.randn(8, 4)).square().mean().backward()


def late_step() -> None:
    without_steps()
    dist.barrier()
    print(len(list(Path(os.environ["RANKSCOPE_RING_DIR"]).glob("*.ring"))))
    dist.barrier()
    train(DistributedDataParallel(torch.nn.Linear(4, 2)))


def killed() -> None:
    train(DistributedDataParallel(torch.nn.Linear(4, 2)))
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def counted(what: str) -> None:
    """Print, and forget, what was compiled so far and where a graph broke."""
    from torch._dynamo.utils import counters

    graphs, frames = counters["stats"]["unique_graphs"], counters["frames"]["total"]
    broken = sum(counters["graph_break"].values())
    print(what, "breaks", broken, "frames", frames, "graphs", graphs, end=" ")
    print("calls", counters["stats"]["calls_captured"])
    print(*(reason for reason in counters["graph_break"] if "rankscope" in reason), sep="", end="")
    counters.clear()


def compiled() -> None:
    """Compile a wrapped model with buffers, a bare one, a collective, an optimizer and a step."""

    def summed(value: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(value)
        return value * 2

    # From here on collectives are hooked, and this optimizer ends steps. One below, which steps
    # without a backward pass, would have the probe register a further hook of torch's.
    first = train(torch.nn.Linear(4, 2))
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    train(torch.compile(DistributedDataParallel(layers), backend="eager"), 2)
    counted("wrapped")
    bare = torch.nn.Linear(4, 2)
    train(torch.compile(bare, backend="eager", fullgraph=True), 2)
    counted("bare")
    summing = torch.compile(summed, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert float(summing(torch.ones(1))) == 2 * dist.get_world_size()
    counted("functional")
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
    update = torch.compile(optimizer.step, backend="eager")

    def step() -> None:
        bare(torch.ones(8, 4)).sum().backward()
        optimizer.step()

    for _ in range(3):
        update()
    counted("optimizer")
    whole = torch.compile(step, backend="eager")
    for _ in range(3):
        whole()
    counted("step")
    del first
    dist.destroy_process_group()


def stages() -> None:
    """Train two pipeline stages of two tensor-parallel ranks each."""
    from torch.distributed.device_mesh import init_device_mesh

    init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    train(torch.nn.Linear(4, 2), 3)
    dist.destroy_process_group()


def pipelined() -> None:
    """Split a model into stages of the default group, which is called nothing of the kind."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, world = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(torch.nn.Linear(4, 4), rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        inputs = [torch.randn(8, 4)] if rank == 0 else []
        schedule.step(*inputs, target=torch.randn(8, 4) if rank == world - 1 else None)
        optimizer.step()
    dist.destroy_process_group()


def tensor() -> None:
    """Split one layer over all ranks: the mesh has the default group, of no telling name."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    train(parallelize_module(torch.nn.Linear(4, 4), mesh, ColwiseParallel()), 3)
    dist.destroy_process_group()


class LettingGo:
    """An object that a gloo thread takes its time to let go of."""

    def __del__(self) -> None:
        time.sleep(0.02)
        print("let go", flush=True)


def busy() -> None:
    """Destroy the process group while a gloo thread still runs Python, as it does for torch."""
    train(DistributedDataParallel(torch.nn.Linear(4, 2)))
    group = dist.group.WORLD  # as models have it
    if dist.get_rank() == 1:
        time.sleep(0.2)  # rank 0 launches, and its threads wait
    torch._C._stash_obj_in_tls("rankscope", LettingGo())  # gloo keeps it with the collective
    dist.all_reduce(torch.ones(1), async_op=True)
    torch._C._stash_obj_in_tls("rankscope", None)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    print("destroyed", flush=True)
    del group


def renumbered() -> None:
    """Start again within the processes, which have each other's rank then."""
    in_turn(1)


def used_again() -> None:
    """Train another model in the same processes, as the workers of Ray and Dask do."""
    in_turn(0)


def left() -> None:
    """Leave the others, and say so while the process lives on."""
    train(DistributedDataParallel(torch.nn.Linear(4, 2)))
    group = dist.new_group([0, 1])
    dist.destroy_process_group(group)
    print(lives(), flush=True)
    dist.destroy_process_group()
    print(lives(), flush=True)


def lives() -> bool:
    """Return True if the lock of this process's ring is held."""
    (ring,) = Path(os.environ["RANKSCOPE_RING_DIR"]).glob(f"{os.getpid()}-*.ring")
    with ring.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def in_turn(shift: int) -> None:
    """Join others twice, the second time with a rank that is higher by so many."""
    for turn in range(2):
        rank = (int(os.environ["RANK"]) + turn * shift) % 2
        if turn:
            dist.destroy_process_group()
            meeting = os.environ["MEETING"] + "-again"
            os.environ["MASTER_PORT"] += "0"
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
        train(DistributedDataParallel(torch.nn.Linear(4, 2)), STEPS + turn)
        dist.barrier()


def sharded_scaler() -> None:
    """Overflow in step 3 on one rank; FSDP's scaler has an `update` of its own."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaling = ShardedGradScaler(device="cpu")
    for number in range(STEPS):
        optimizer.zero_grad()
        scaling.scale(model(torch.randn(8, 4)).square().mean()).backward()
        if number == 3 and dist.get_rank() == 1:
            model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaling.step(optimizer)
        scaling.update()


def with_cuda() -> None:
    """Train on the CPU while CUDA is in use, by a library for images perhaps."""
    torch.cuda.is_available = torch.cuda.is_initialized = lambda: True
    train(DistributedDataParallel(torch.nn.Linear(4, 2)))
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(STEPS):
        parameter.square().sum().backward()
        dist.all_reduce(parameter.grad)
        optimizer.step()


JOBS = {
    "with-cuda": with_cuda,
    "left": left,
    "renumbered": renumbered,
    "used-again": used_again,
    "sharded-scaler": sharded_scaler,
    "torchrun": torchrun,
    "tidy": tidy,
    "exit": exit_during_collective,
    "killed": killed,
    "compiled": compiled,
    "stages": stages,
    "pipelined": pipelined,
    "tensor": tensor,
    "busy": busy,
    "stepless": without_steps,
    "late-step": late_step,
    "few-backwards": few_backwards,
    "stepless-for-long": without_steps_for_long,
}

if __name__ == "__main__":
    meeting = os.environ.get("MEETING", "env://")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    JOBS[sys.argv[1]]()
