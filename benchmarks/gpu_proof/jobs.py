"""Runs two ranks of a job on one GPU under the probe, and judges their records.

Each rank has its own host name for NCCL (NCCL_HOSTID), which otherwise refuses two ranks on one
GPU, so that they communicate over sockets on the loopback interface.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from benchmarks.gpu_proof import training
from benchmarks.gpu_proof.training import FAULTS, KINDS, SLOW_RANK
from benchmarks.running_jobs.launch import ForkServer, send

from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose

EXPECTED: Mapping[str, str | None] = {
    "healthy": None,
    "device": "gpu_compute",
    "host": "gpu_compute",
    "input": "data_loader",
    "copies": "gpu_compute",
    "hidden": None,
}
"""Class of the verdict on each fault: host stalls and copies are time that a rank computes longer,
and the sentence tells them apart. Input that loads while the device is busy costs nothing."""

VERDICT_BUDGET = 0.05
"""Fraction of the time for samples if a verdict is wanted on a run of seconds. The cost of samples
themselves is measured in a run without it."""

START_SECONDS = 45.0
TRAINING = Path(training.__file__)


@dataclass(frozen=True, slots=True)
class Run:
    """One job.

    Args:
        kind: one of `KINDS`.
        fault: one of `FAULTS`.
        seconds: of training.
        device: `cuda`, or `cpu` to try the loops on gloo.
        variables: further environment variables.
        words: further arguments.
    """

    kind: str
    fault: str
    seconds: float = 6.0
    device: str = "cuda"
    variables: Mapping[str, str] | None = None
    words: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse unknown values.

        Raises:
            ValueError: no such kind, or fault.
        """
        if self.kind not in KINDS or self.fault not in FAULTS:
            raise ValueError(f"no job {self.kind} with {self.fault}, have {KINDS} with {FAULTS}")


def environment(run: Run, folder: Path, rank: int, port: int) -> dict[str, str]:
    """Return the variables of one rank."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_HOSTID": f"gpu-proof-{rank}",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET",
        "NCCL_DEBUG_FILE": str(folder / f"nccl-{rank}.log"),
        "RANKSCOPE_RING_DIR": str(folder / "rings"),
        "RANKSCOPE_JOB_ID": f"gpu-proof/{run.kind}-{run.fault}",
        "RANKSCOPE_NODE_NAME": "gpu-proof",
        "RANKSCOPE_PROBE_STREAM_WAITS": "1",
        "GPU_PROOF_COSTS": str(folder / f"costs-{rank}.json"),
        **(run.variables or {}),
    }


class Rank:
    """A rank that was forked from a process that has imported torch, which takes seconds."""

    def __init__(self, run: Run, folder: Path, rank: int, port: int) -> None:
        words = [run.kind, run.fault, f"--seconds={run.seconds}", f"--device={run.device}"]
        self.folder, self.number = folder, rank
        self.pid = fork_server().start(
            TRAINING, [*words, *run.words], environment(run, folder, rank, port), self.output
        )

    @property
    def output(self) -> Path:
        """Return the file of what it writes."""
        return self.folder / f"output-{self.number}.log"

    def exit_code(self, end: float) -> int | None:
        """Return its exit code, None if it still runs at a time of the monotonic clock."""
        while (code := fork_server().exit_code(self.pid)) is None and time.monotonic() < end:
            time.sleep(0.05)
        return code

    def kill(self) -> None:
        """End it."""
        if fork_server().exit_code(self.pid) is None:
            send([self.pid], signal.SIGKILL)
            self.exit_code(time.monotonic() + 5.0)


@cache
def fork_server() -> ForkServer:
    """Return the process that all ranks are forked from, until `end_fork_server`."""
    # Asked by NVML, as a process that has opened CUDA cannot be forked.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    return ForkServer()


def end_fork_server() -> None:
    """End the process that ranks are forked from, if there is one."""
    if fork_server.cache_info().currsize:
        fork_server().__exit__(None, None, None)
        fork_server.cache_clear()


@contextlib.contextmanager
def started(run: Run, folder: Path) -> Iterator[Sequence[Rank]]:
    """Start both ranks; those that still run at the end are killed."""
    (folder / "rings").mkdir(parents=True, exist_ok=True)
    port, ranks = free_port(), list[Rank]()
    try:
        for rank in (0, 1):
            ranks.append(Rank(run, folder, rank, port))
        yield ranks
    finally:
        for one in ranks:
            one.kill()


def finish(run: Run, folder: Path, limit_seconds: float) -> str:
    """Run a job to its end; return why it failed, empty if it did not."""
    with started(run, folder) as ranks:
        end = time.monotonic() + min(limit_seconds, START_SECONDS + 2 * run.seconds)
        for one in ranks:
            code = one.exit_code(end)
            if code is None:
                return f"rank {one.number} did not end within its time"
            if code:
                return f"rank {one.number} ended with {code}: {last_line(folder, one.number)}"
    return ""


def last_line(folder: Path, rank: int) -> str:
    """Return the last line that a rank wrote, which names its error."""
    text = (folder / f"output-{rank}.log").read_text(encoding="utf-8", errors="replace")
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")[:200]


def records(folder: Path) -> pd.DataFrame:
    """Return the step records of a job, as its agent gives them."""
    rings = folder / "rings"
    rows = RingStepSource(rings, folder / "kubelet", "gpu-proof").steps(None, 0.0)
    return pd.DataFrame(list(rows), columns=list(STEP_COLUMNS))


def judged(rows: pd.DataFrame, run: Run) -> tuple[dict[str, Any], str]:
    """Return figures of a job's records, and what is wrong with the verdict, empty for nothing."""
    if rows.empty:
        return {}, "no step was recorded"
    (verdict,) = diagnose([JobRecords("gpu-proof", rows, 2, (), live=True)])
    cause = verdict.cause
    named = None if cause is None else (cause.kind, list(cause.where.ranks))
    kind = EXPECTED[run.fault]
    expected = None if kind is None else (kind, [SLOW_RANK])
    figures = {
        "steps": len(rows) // 2,
        "sampled": int(rows["compute_seconds"].notna().sum()),
        "verdict": named,
        "sentence": "" if cause is None else cause.summary,
        "medians": medians(rows),
    }
    return figures, "" if named == expected else f"expected {expected}, the verdict is {named}"


PARTS = ("step", "data", "compute", "sync", "copies", "host_late")


def medians(rows: pd.DataFrame) -> Mapping[str, Sequence[float | None]]:
    """Return the medians of both ranks by part of the step, seconds; None if unmeasured."""
    shown: dict[str, list[float | None]] = {}
    for part in PARTS:
        column = rows[f"{part}_seconds"].astype(float)
        values = [column[rows["rank"] == rank].dropna() for rank in (0, 1)]
        shown[part] = [round(median(one), 6) if len(one) else None for one in values]
    return shown


def compiled(folder: Path) -> Mapping[str, int]:
    """Return how much the first rank has compiled."""
    read = json.loads((folder / "costs-0.json").read_text())
    return {name: read[name] for name in ("graphs", "frames", "breaks")}


def costs_of_samples(folder: Path) -> dict[str, float]:
    """Return what samples cost the rank that they cost most; see `training.own_costs`."""
    read = [json.loads((folder / f"costs-{rank}.json").read_text()) for rank in (0, 1)]
    most = max(read, key=lambda one: float(one["sample"]))
    return {name: float(most[name]) for name in ("every", "sample", "between", "step")}


def costs(folder: Path) -> Mapping[str, float]:
    """Return the probe's own share of all step seconds, the larger of both ranks'."""
    read = [json.loads((folder / f"costs-{rank}.json").read_text()) for rank in (0, 1)]
    shares = [one["own"] / one["all"] for one in read if one.get("all")]
    return {"own_share": max(shares), "every": read[0]["every"]} if shares else {}
