"""Cost of the `rankscope watch` process: CPU of an evaluation and memory, by cluster size."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.commands import environment
from benchmarks.fleet_server import RANKS_OF_A_NODE, SLOW, fleet
from benchmarks.processes import cpu_seconds, memory_mib, scrape

from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.fusion.gather import KEPT_POLLS

SINCE_SECONDS = 1800.0  # as far back as the watch looks by default

FLEETS: tuple[tuple[int, float], ...] = ((8, 1.0), (64, 2.0), (512, 10.0), (2048, 10.0))
"""Nodes, and seconds of a step: the more ranks a job has, the longer its steps."""

EVALUATIONS = KEPT_POLLS  # from then on the watch holds as many pages as it ever does
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class WatchCost:
    """The cost of one watch.

    Args:
        cpu: seconds of the last evaluation.
        wall: of the last evaluation, by its own measurement.
        resident: MiB between evaluations.
        peak: MiB at most.
        named: True if the slow rank was named.
    """

    agents: int
    steps: int
    cpu: float
    wall: float
    resident: float
    peak: float
    named: bool


def measure(fleets: Sequence[tuple[int, float]] = FLEETS) -> tuple[WatchCost, ...]:
    """Watch fleets, one after the other."""
    return tuple(_watched(agents, step_seconds) for agents, step_seconds in fleets)


def _watched(agents: int, step_seconds: float) -> WatchCost:
    steps = int(SINCE_SECONDS / step_seconds)
    port = free_port()
    with fleet(agents, steps, step_seconds) as urls:
        command = [sys.executable, "-m", "rankscope_analyzers", "watch", "--interval=1s"]
        command += [f"--web.listen-address=127.0.0.1:{port}"]
        command += [word for url in urls for word in ("--agent", url)]
        with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as watch:
            try:
                at, spent, cpu = 0.0, 0.0, 0.0
                for _ in range(EVALUATIONS):
                    page, at = _evaluated(port, watch.pid, after=at)
                    spent, cpu = cpu_seconds(watch.pid) - cpu, cpu_seconds(watch.pid)
                return WatchCost(
                    agents=agents,
                    steps=steps,
                    cpu=spent,
                    wall=_value(page, "rankscope_watch_evaluation_seconds"),
                    resident=memory_mib(watch.pid, "VmRSS"),
                    peak=memory_mib(watch.pid, "VmHWM"),
                    named=f'rank="{SLOW}"' in page,
                )
            finally:
                watch.kill()


def _evaluated(port: int, pid: int, after: float) -> tuple[str, float]:
    """Wait for a later evaluation; return the page and when it ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            page = scrape(port, {}).decode()
            at = _value(page, "rankscope_watch_last_evaluation_timestamp_seconds")
        except (OSError, ValueError):
            at, page = 0.0, ""
        if at > after:
            return page, at
        time.sleep(0.2)
    raise RuntimeError(f"the watch with pid {pid} has not evaluated in {PATIENCE_SECONDS} s")


def _value(page: str, name: str) -> float:
    found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"the page has no {name}")
    return float(found[1])


def report(costs: Sequence[WatchCost]) -> str:
    """Return the figures."""
    lines = [f"rankscope watch over {SINCE_SECONDS:.0f} s of records, per evaluation"]
    lines += [
        f"  {cost.agents} agents, {cost.agents * RANKS_OF_A_NODE} ranks, {cost.steps} steps:"
        f" {cost.cpu:.2f} s CPU, {cost.wall:.1f} s wall, {cost.resident:.0f} MiB between,"
        f" {cost.peak:.0f} MiB peak; slow rank {'named' if cost.named else 'NOT named'}"
        for cost in costs
    ]
    return "\n".join(lines) + "\n"
