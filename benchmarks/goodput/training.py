"""A training script with faults of known length, which records its own measurements.

FAULTS=<cause>:<first step>:<steps>:<seconds each>,...: data (all ranks' input takes longer),
straggler (rank 1 computes longer), checkpoint (rank 0 saves), hang (rank 1 stands still), restart
(rank 1 raises in the first attempt), unprobed (from there on the second attempt has no probe).
Every rank writes a line of JSON per event to JOURNAL/<rank>-<attempt>.
"""

import json
import os
import pathlib
import sys
import time

ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
FAULTS = [one.split(":") for one in os.environ.get("FAULTS", "").split(",") if one]
UNPROBED = any(one[0] == "unprobed" for one in FAULTS)
if UNPROBED and ATTEMPT == 1 and os.environ.get("RANKSCOPE_PROBE") != "0":
    os.environ["RANKSCOPE_PROBE"] = "0"
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - itself, without the probe

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

RANK = int(os.environ["RANK"])
STEPS = int(os.environ["STEPS"])
COMPUTE, DATA = 0.06, 0.01
START = float(os.environ.get("START_SECONDS", "0"))
JOURNAL = pathlib.Path(f"{os.environ['JOURNAL']}/{RANK}-{ATTEMPT}").open("w", buffering=1)  # noqa: SIM115
CHECKPOINT = f"{os.environ['JOURNAL']}/checkpoint.pt"


def write(**event: object) -> None:
    """Write a line into the journal."""
    JOURNAL.write(json.dumps(event) + "\n")


def fault(cause: str, step: int) -> float:
    """Return for how many seconds a fault lasts in a step."""
    found = 0.0
    for name, first, steps, seconds in FAULTS:
        if name == cause and int(first) <= step < int(first) + int(steps):
            found += float(seconds)
    return found


def last(cause: str, step: int) -> None:
    """Sleep for a fault's duration in a step; write how long that was."""
    seconds = fault(cause, step)
    if seconds:
        began = time.perf_counter()
        time.sleep(seconds)
        write(cause=cause, step=step, seconds=time.perf_counter() - began)


class Slow:
    """Takes long to be saved."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __reduce__(self) -> tuple[type, tuple[()]]:
        last("checkpoint", self.step)
        return dict, ()


class Batches(Dataset[torch.Tensor]):
    """Input that takes a while."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(DATA)
        last("data", self.first + number)
        return torch.ones(8)


class Model(nn.Module):
    """Computes for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.step = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Compute, and wait for whatever this rank is to wait for."""
        found: torch.Tensor = self.layer(batch)
        time.sleep(COMPUTE)
        if RANK == 1:
            last("straggler", self.step)
            last("hang", self.step)
        return found


def began() -> float:
    """Return when this process was started, according to the kernel."""
    with pathlib.Path("/proc/self/stat").open() as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    with pathlib.Path("/proc/uptime").open() as file:
        up = float(file.read().split()[0])
    return time.time() - up + ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Train."""
    write(event="process", at=began())
    time.sleep(START)
    dist.init_process_group("gloo")
    model = Model()
    first = 0
    if ATTEMPT and pathlib.Path(CHECKPOINT).exists():
        first = torch.load(CHECKPOINT, weights_only=False)["step"]
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    batches = iter(DataLoader(Batches(first), batch_size=1))
    for step in range(first, STEPS):
        begin = time.time()
        model.step = step
        loss = parallel(next(batches)).sum()
        loss.backward()
        if fault("restart", step) and RANK == 1 and not ATTEMPT:
            write(event="fails", at=time.time(), step=step)
            os._exit(3)
        if fault("unprobed", step) and ATTEMPT == 1 and RANK == 1:
            write(event="fails", at=time.time(), step=step)
            os._exit(3)
        optimizer.step()
        write(event="step", step=step, begin=begin, end=time.time())
        if RANK == 0 and fault("checkpoint", step):
            state = {"model": model.state_dict(), "slow": Slow(step), "step": step + 1}
            torch.save(state, f"{CHECKPOINT}.new")
            pathlib.Path(f"{CHECKPOINT}.new").replace(CHECKPOINT)
    write(event="over", at=time.time())
    time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
