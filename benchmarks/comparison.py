"""One table of the cost of parts of Rankscope compared with what is in use for the same work today.

Each row is the ratio of CPU times measured alternately on one machine, so that other load affects
both equally. The table is in docs/performance.md.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from benchmarks import (
    agent_cost,
    nccl_log_cost,
    probe_cost,
    prometheus_cost,
    rdma_cost,
    scrape_cost,
    straggler_speed,
)
from benchmarks.straggler_suite import published

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed

RANKS, STEPS, ROUNDS = 1024, 300, 5
PACKAGES = ("prometheus-client", "numpy", "pandas", "polars", "prometheus-pandas")


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison.

    Args:
        work: what both do.
        other: the program or library that ours is compared with.
        ours, theirs: CPU time in the unit; None if the other is missing.
        unit: of both.
        goal: of the ratio, at most; None if the other does less than ours.
    """

    work: str
    other: str
    ours: float
    theirs: float | None
    unit: str
    goal: float | None

    @property
    def text(self) -> str:
        """Return a row of the table in Markdown."""
        if self.theirs is None:
            return f"| {self.work} | {self.other} | {self.ours:.3g} {self.unit} | not there | | |"
        goal = "" if self.goal is None else f"{self.goal:g}"
        ratio = self.ours / self.theirs
        return (
            f"| {self.work} | {self.other} | {self.ours:.3g} {self.unit} | {self.theirs:.3g}"
            f" {self.unit} | {ratio:.2f} | {goal} |"
        )


def _agent() -> Iterator[Row]:
    cost = agent_cost.measure()
    theirs = cost.exporter.median_percent if cost.exporter else None
    work = "an agent with 8 ranks at 10 steps a second, scraped each second"
    yield Row(work, "node_exporter", cost.agent.median_percent, theirs, "% of a core", 1.0)


def _scrapes() -> Iterator[Row]:
    cost = scrape_cost.measure().milliseconds
    other = cost[scrape_cost.CLIENT]
    of = f"{scrape_cost.SERIES:,} series"
    name = "prometheus_client"
    yield Row(f"a repeated scrape of {of}", name, cost[scrape_cost.OURS_CACHED], other, "ms", 0.2)
    yield Row(
        f"a scrape of {of} with new values", name, cost[scrape_cost.OURS_NEW], other, "ms", None
    )


def _rdma() -> Iterator[Row]:
    cost = rdma_cost.measure()
    idle = cost.idle_exporter or 0.0
    theirs = None if cost.exporter is None else cost.exporter - idle
    work = f"counters of {rdma_cost.PORTS} RDMA ports"
    yield Row(work, "node_exporter's infiniband", cost.ours, theirs, "ms", rdma_cost.GOAL_RATIO)


def _nccl() -> Iterator[Row]:
    cost = nccl_log_cost.measure()
    for kind, speeds in cost.speeds.items():
        for other, least in (
            ("rg -c", nccl_log_cost.GOALS[kind]),
            ("rg -oN -r", nccl_log_cost.EXTRACTION_GOAL),
            ("mtail", nccl_log_cost.MTAIL_GOAL),
        ):
            ours = 1e3 / speeds["rankscope"]
            theirs = 1e3 / speeds[other] if other in speeds else None
            yield Row(f"a GB of a {kind} NCCL log", other, ours, theirs, "s", 1 / least)


def _pandas_baseline(records: pd.DataFrame) -> int:
    """Name the rank whose compute time is furthest above its step's median: no cause, no cost."""
    median = records.groupby("step")["compute_seconds"].transform("median")
    by_rank = (records["compute_seconds"] / median).groupby(records["rank"]).mean()
    return int(cast("np.int64", by_rank.idxmax()))


def _polars_baseline(records: Any) -> int:
    """Name the same rank with polars."""
    import polars as pl

    ratio = pl.col("compute_seconds") / pl.col("compute_seconds").median().over("step")
    by_rank = records.with_columns(ratio=ratio).group_by("rank").agg(pl.col("ratio").mean())
    return int(by_rank.sort("ratio")["rank"][-1])


def _relative_score(records: pd.DataFrame) -> None:
    """Judge windows of 16 steps like nvidia-resiliency-ext, reimplemented from its description."""
    job = published.matrix(records, {"world_size": RANKS})
    published.verdicts(job, published.relative_score)


def _judged(records: pd.DataFrame) -> None:
    feed.detect(FrameTable(records), Layout(RANKS, 8, 8, 16, False))


def _stragglers() -> Iterator[Row]:
    records = straggler_speed.trace(RANKS, STEPS)
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: _judged(records),
        "pandas": lambda: _pandas_baseline(records),
        "relative score": lambda: _relative_score(records),
    }
    try:
        import polars
    except ImportError:
        pass
    else:
        table = polars.from_pandas(records)
        works["polars"] = lambda: _polars_baseline(table)
    spent = _alternately(works)
    of = f"{len(records):,} records: incidents with causes, compared with"
    for other, what in (
        ("pandas", "a rank's mean share of its steps' medians"),
        ("polars", "the same"),
        ("relative score", "nvidia-resiliency-ext's score by window, reimplemented"),
    ):
        yield Row(f"{of} {what}", other, spent["ours"], spent.get(other), "s", None)


def _alternately(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    spent: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.process_time()
            work()
            spent[name].append(time.process_time() - began)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def _record() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=probe_cost.memory_directory()) as folder:
        cost = probe_cost.write_cost(folder)
    name = "prometheus_client's labels().observe()"
    yield Row("a record of a step: check, pack, write", name, cost.write, cost.observe, "ns", 1.0)
    yield Row("the same, arithmetic included", name, cost.record, cost.observe, "ns", None)


def _pull() -> Iterator[Row]:
    cost = prometheus_cost.measure()
    work = f"{prometheus_cost.SERIES:,} series of {prometheus_cost.POINTS} points into a frame"
    yield Row(work, "prometheus-pandas", cost.cpu, cost.pandas_cpu, "s", prometheus_cost.BAR)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "record": _record,
    "agent": _agent,
    "scrapes": _scrapes,
    "rdma": _rdma,
    "nccl": _nccl,
    "stragglers": _stragglers,
    "pull": _pull,
}
"""What is compared, by name."""


def measure(names: Sequence[str] = ()) -> Sequence[Row]:
    """Measure some parts, by default all."""
    return [row for name in names or PARTS for row in PARTS[name]()]


def report(rows: Sequence[Row]) -> str:
    """Return the table in Markdown, with the machine and versions."""
    head = (
        "| work | compared with | rankscope | the other | ratio | goal |",
        "|---|---|---|---|---|---|",
    )
    return "\n".join((*head, *(row.text for row in rows), "", about()))


def about() -> str:
    """Describe the machine in neutral words, and the versions."""
    load = os.getloadavg()[0]
    found = [f"Python {platform.python_version()}", *filter(None, map(_version, PACKAGES))]
    found += filter(None, map(_program_version, ("prometheus-node-exporter", "rg", "mtail")))
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {platform.machine()}, load average {load:.0f}; {', '.join(found)}."


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def _program_version(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        return ""
    printed = subprocess.run([path, "--version"], capture_output=True, text=True)
    found = re.search(r"\d+\.\d+(?:\.\d+)?", printed.stdout + printed.stderr)
    return f"{program} {found[0]}" if found else program
