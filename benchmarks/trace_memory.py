"""Memory of judging a whole trace, compared with a plain skew query in polars on the same file.

The trace has 16,384 ranks and 1,000 steps. Ours is the whole analysis, with all columns, classes,
and incidents; the query is the shortest that finds slow ranks: compute against the median of the
step, averaged per rank. Both run in fresh processes, alternately.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.straggler_speed import MICROBATCHES, PIPELINE, TENSOR, trace

RANKS, STEPS, STEPS_AT_ONCE = 16384, 1000, 40
ROUNDS = 5
SLOW_RANK, SLOWNESS = 1234, 1.4

OURS = """
from pathlib import Path
from rankscope_analyzers.stragglers.trace_verdicts import judge
said = judge(Path(place)).verdicts
answer = said[0]["ranks"][0] if said else -1
"""

PLAIN = """
import polars
rows = polars.scan_parquet(place + "/records.parquet").select("step", "rank", "compute_seconds")
skew = polars.col("compute_seconds") - polars.col("compute_seconds").median().over("step")
means = rows.with_columns(skew=skew).group_by("rank").agg(polars.col("skew").mean())
answer = means.sort("skew", descending=True).head(8).collect()["rank"][0]
"""

MEASURED = """
import json, resource, sys
place = sys.argv[1]
{body}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([int(answer), used.ru_maxrss / 1024, used.ru_utime + used.ru_stime]))
"""


@dataclass(frozen=True, slots=True)
class Used:
    """Peak resident memory in MiB and CPU seconds, medians."""

    memory: float
    cpu: float


def measure() -> dict[str, Used]:
    """Write the trace and let both find its slow rank."""
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as folder:
        _write(Path(folder))
        runs: dict[str, list[tuple[float, float]]] = {"rankscope": [], "polars": []}
        for _ in range(ROUNDS):
            runs["rankscope"].append(_run(OURS, folder))
            runs["polars"].append(_run(PLAIN, folder))
    return {
        name: Used(median(m for m, _ in used), median(c for _, c in used))
        for name, used in runs.items()
    }


def _run(body: str, folder: str) -> tuple[float, float]:
    program = MEASURED.format(body=body)
    answered = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, check=True, text=True
    )
    rank, memory, cpu = json.loads(answered.stdout)
    if rank != SLOW_RANK:
        raise RuntimeError(f"rank {rank} was found slow, expected {SLOW_RANK}")
    return memory, cpu


def _write(folder: Path) -> None:
    """Write a trace of a job whose rank `SLOW_RANK` is slow after a third of it."""
    meta = {"format_version": 1, "job": "big", "world_size": RANKS, "tensor_parallel": TENSOR}
    meta |= {"pipeline_parallel": PIPELINE, "microbatches": MICROBATCHES}
    (folder / "meta.json").write_text(json.dumps(meta | {"compute_timing": "kernel"}))
    table = trace(RANKS, STEPS_AT_ONCE)
    compute = table["compute_seconds"].to_numpy(copy=True)
    length = float(table["t_start_unix_seconds"].iloc[-1] - 1e9) + 3.0
    schema = pa.Schema.from_pandas(table, preserve_index=False)
    with pq.ParquetWriter(folder / "records.parquet", schema, compression="zstd") as writer:
        for part in range(STEPS // STEPS_AT_ONCE):
            slow = (table["rank"].to_numpy() == SLOW_RANK) & (3 * part >= STEPS // STEPS_AT_ONCE)
            table["compute_seconds"] = np.where(slow, SLOWNESS, 1.0) * compute
            writer.write_table(pa.Table.from_pandas(table, schema, preserve_index=False))
            table["step"] += STEPS_AT_ONCE
            table["t_start_unix_seconds"] += length


def report(used: dict[str, Used]) -> str:
    """Return the figures as text."""
    ours, plain = used["rankscope"], used["polars"]
    return "\n".join(
        [
            f"{RANKS * STEPS / 1e6:.1f} M records, Parquet: analysis {ours.memory:.0f} MiB and "
            f"{ours.cpu:.1f} s of CPU ({RANKS * STEPS / 1e6 / ours.cpu:.2f} M records a second, "
            "reading included)",
            f"plain skew query in polars: {plain.memory:.0f} MiB and {plain.cpu:.1f} s; memory "
            f"{ours.memory / plain.memory:.2f}x of it (goal 0.5)",
        ]
    )
