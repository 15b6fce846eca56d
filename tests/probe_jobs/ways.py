"""The ways in which jobs are written, how each is launched, and whom the verdict on one names."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from probe_jobs.nurseries import Forked, Nurseries, Nursery
from probe_jobs.running import (
    JOBS,
    OWN_STORE,
    Outcome,
)
from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose
from rankscope_analyzers.stragglers.verdict import Verdict

NOBODY = -1
SLOW_RANK = 1
DOOMED_NODE = "doomed"  # as frameworks.py calls it

TRAINERS = ("hf_trainer", "accelerate", "lightning")

RENDEZVOUS = ("--rdzv-backend=c10d", "--local-addr=127.0.0.1")
PATIENCE_SECONDS = (5, 30, 120)
"""After how long the rendezvous goes on without the nodes that are silent, one attempt each."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write a job.

    Args:
        name: the job's name in its script.
        fault: what the slow rank is slow in.
        ranks: how many ranks it has, the last attempt of elastic ones.
        launcher: a nursery that forks, torchrun with a restart, or two nodes' of which one dies.
    """

    name: str
    fault: Literal["compute", "data", "cpu"] = "compute"
    ranks: int = 2
    launcher: Literal["fork", "torchrun", "two nodes"] = "fork"

    @property
    def script(self) -> str:
        """The file that holds the job."""
        return "trainers.py" if self.name in TRAINERS else "frameworks.py"

    @property
    def cause(self) -> str:
        """The class of the verdict on it."""
        causes = {"compute": "gpu_compute", "data": "data_loader", "cpu": "host_transient"}
        return causes[self.fault]

    def __str__(self) -> str:
        return self.name if self.fault == "compute" else f"{self.name}-{self.fault}"


WAYS: Sequence[Way] = (
    Way("ddp"),
    Way("fsdp2"),
    Way("tensor_parallel"),
    Way("two_dimensions", ranks=4),
    Way("manual"),
    Way("accumulation"),
    Way("two_optimizers"),
    Way("scaler"),
    Way("compiled"),
    Way("starved", "cpu"),
    Way("hf_trainer"),
    Way("hf_trainer", "data"),
    Way("accelerate"),
    Way("accelerate", "data"),
    Way("lightning"),
    Way("lightning", "data"),
    Way("execs"),
    Way("elastic", launcher="torchrun"),
    Way("shrink", launcher="two nodes"),
)


def run(way: Way, slow_rank: int, nurseries: Nurseries, rings: Path) -> Sequence[Outcome]:
    """Run a job to its end; return how its ranks ended, or its launcher if it has one."""
    fault = [way.fault] if way.script == "trainers.py" else []
    command = [way.name, str(slow_rank), *fault]
    if way.launcher == "fork":
        nursery = nurseries.trainers if way.name in TRAINERS else nurseries.probed
        return nursery.run(rings, way.script, *command, ranks=way.ranks)
    script = [str(JOBS / way.script), *command]
    if way.launcher == "torchrun":
        launch = ["--standalone", f"--nproc-per-node={way.ranks}", "--max-restarts=1"]
        return nurseries.probed.run(
            rings, "torchrun.py", *launch, *script, ranks=1, finalized=False, **OWN_STORE
        )
    return [run_shrinking(nurseries.probed, script, rings)]


def run_shrinking(nursery: Nursery, script: Sequence[str], rings: Path) -> Outcome:
    """Run a job on two nodes of two ranks, of which one goes; return how the other ended.

    Where so much else runs that a node is given up which only was slow, the job begins again, with
    more patience.
    """
    for seconds in PATIENCE_SECONDS:
        for ring in rings.iterdir() if rings.is_dir() else ():
            ring.unlink()
        kept, doomed = nursery.end_of(_two_nodes(nursery, script, rings, seconds))
        if doomed.code == -signal.SIGKILL:
            return kept
    raise AssertionError(f"the node did not go: {doomed}")


def _two_nodes(
    nursery: Nursery, script: Sequence[str], rings: Path, patience_seconds: int
) -> Sequence[Forked]:
    launch = ["launched.py", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3", *RENDEZVOUS]
    launch += [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=shrink"]
    conf = f"keep_alive_interval=1,keep_alive_max_attempt={patience_seconds}"
    conf += f",last_call_timeout={patience_seconds}"
    variables = {"RANKSCOPE_RING_DIR": str(rings), **OWN_STORE}
    return [
        nursery.start(
            [*launch, f"--rdzv-conf={conf},is_host={is_host}", *script],
            variables | {"NODE_NAME": node},
        )
        for node, is_host in (("kept", 1), (DOOMED_NODE, 0))
    ]


def records_in(rings: Path) -> pd.DataFrame:
    """Read the rings as an agent does that is asked for its step records."""
    rows = RingStepSource(rings, rings / "kubelet", "node").steps(None, 0.0)
    return pd.DataFrame(list(rows), columns=list(STEP_COLUMNS))


def verdict_on(records: pd.DataFrame, ranks: int) -> Verdict:
    """Judge the records of one job."""
    assert records["job_id"].nunique() == 1
    (verdict,) = diagnose([JobRecords("job", records, ranks, (), live=True)])
    return verdict


def named(verdict: Verdict) -> tuple[str, tuple[int, ...]] | None:
    """Say which class and which ranks a verdict names, None for nobody."""
    if verdict.cause is None:
        return None
    return verdict.cause.kind, verdict.cause.where.ranks
