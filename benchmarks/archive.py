"""The cost of a Dask cluster of two workers on an archive of traces, compared with one process.

`rankscope diagnose --verdicts` judges the same traces both ways, alternately, and must write the
same bytes. CPU is that of all processes, including the cluster's scheduler and workers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.commands import cpu_of
from benchmarks.straggler_speed import MICROBATCHES, PIPELINE, TENSOR, trace

JOBS, RANKS, STEPS = 96, 2048, 1000
"""Traces; one process takes two minutes of CPU for them."""

SLOW_RANKS: Sequence[int | None] = (None, 77, 1234, 2040)
"""Different sets of records; jobs share them."""

SLOWNESS, SLOW_FROM = 1.4, 400
ROUNDS = 2
BAR, LEAST_SHARE = 1.15, 0.4


@dataclass(frozen=True, slots=True)
class ArchiveCost:
    """CPU seconds by round, of one process and of a cluster; how many jobs each worker judged."""

    alone: Sequence[float]
    cluster: Sequence[float]
    tasks: Sequence[Mapping[str, int]]


def measure() -> ArchiveCost:
    """Write the archive, and judge it both ways.

    Raises:
        RuntimeError: the cluster wrote other verdicts than one process.
    """
    alone, cluster, tasks = [], [], []
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as name:
        folder = Path(name)
        _write(folder / "traces")
        words = ["diagnose", "--trace", str(folder / "traces"), "--verdicts"]
        one, many, counts = folder / "one.json", folder / "many.json", folder / "counts.json"
        for _ in range(ROUNDS):
            command = [sys.executable, "-m", "rankscope_analyzers", *words, str(one)]
            alone.append(cpu_of([*command, "--workers", "1"]))
            command = [sys.executable, "-m", "benchmarks.local_cluster", str(counts), *words]
            cluster.append(cpu_of([*command, str(many)]))
            if one.read_bytes() != many.read_bytes():
                raise RuntimeError("the cluster wrote other verdicts than one process")
            tasks.append(json.loads(counts.read_text()))
    return ArchiveCost(alone, cluster, tasks)


def _write(folder: Path) -> None:
    """Write the traces; jobs with the same records share a file."""
    table = trace(RANKS, STEPS)
    compute = table["compute_seconds"].to_numpy(copy=True)
    late = table["step"].to_numpy() >= SLOW_FROM
    meta = {"format_version": 1, "world_size": RANKS, "tensor_parallel": TENSOR}
    meta |= {"pipeline_parallel": PIPELINE, "microbatches": MICROBATCHES}
    for kind, slow in enumerate(SLOW_RANKS):
        slower = late & (table["rank"].to_numpy() == slow)
        table["compute_seconds"] = np.where(slower, SLOWNESS, 1.0) * compute
        first = folder / f"job-{kind:03d}" / "records.parquet"
        for number in range(kind, JOBS, len(SLOW_RANKS)):
            job = folder / f"job-{number:03d}"
            job.mkdir(parents=True)
            named = {"job": job.name, "compute_timing": "kernel"}
            (job / "meta.json").write_text(json.dumps(meta | named))
            if number == kind:
                table.to_parquet(first)
            else:
                os.link(first, job / first.name)


def report(cost: ArchiveCost) -> str:
    """Return the figures with their bars."""
    ratios = [many / one for many, one in zip(cost.cluster, cost.alone, strict=True)]
    shares = [min(counts.values()) / sum(counts.values()) for counts in cost.tasks]
    seconds = f"{median(cost.alone):.0f} s of CPU by one process, {median(cost.cluster):.0f} s"
    return "\n".join(
        [
            f"{JOBS} traces of {RANKS} ranks and {STEPS} steps: {seconds} by a Dask cluster of two"
            " workers, the same verdicts byte for byte",
            f"  {median(ratios):.2f}x the CPU (at most {BAR}), each round"
            f" {', '.join(f'{ratio:.2f}' for ratio in ratios)}",
            f"  the worker with fewer jobs has {min(shares):.0%} of them (at least"
            f" {LEAST_SHARE:.0%})",
        ]
    )
