"""CPU time and memory of the agent compared with node_exporter, both scraped every second.

The agent collects every second from 8 rings with 10 records a second. Both servers run at the same
time and are scraped alternately, so that other load on the machine affects both equally.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import cpu_seconds, memory_mib, scrape, series_on, serving
from benchmarks.ring_writer import training

from rankscope_analyzers.demo.free_ports import free_port

ROUNDS = 6
ROUND_SECONDS = 10
RANKS = 8
STEPS_PER_SECOND = 10.0
MEMORY_GOAL_MIB = 64.0
EXPORTER = "prometheus-node-exporter"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one server that is scraped every second.

    Args:
        cpu_percent: CPU time as per cent of one core, a figure for each round.
        memory_mib: resident memory at the end.
        series: series on its page.
    """

    cpu_percent: tuple[float, ...]
    memory_mib: float
    series: int

    @property
    def median_percent(self) -> float:
        """Return the CPU time in the median round."""
        return statistics.median(self.cpu_percent)


@dataclass(frozen=True, slots=True)
class AgentCost:
    """The agent compared with node_exporter, None if that is not installed."""

    agent: Cost
    exporter: Cost | None


def measure(rounds: int = ROUNDS, round_seconds: int = ROUND_SECONDS) -> AgentCost:
    """Run both servers and scrape them every second, alternately."""
    exporter = shutil.which(EXPORTER)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(training(folder, RANKS, STEPS_PER_SECOND))
        servers = [stack.enter_context(_agent(folder))]
        if exporter is not None:
            servers.append(stack.enter_context(_exporter(exporter)))
        spent = [shares_of_a_core(servers, round_seconds) for _ in range(rounds)]
        costs = [
            Cost(tuple(percents), memory_mib(pid, "VmRSS"), series_on(port))
            for (pid, port), percents in zip(servers, zip(*spent, strict=True), strict=True)
        ]
    return AgentCost(costs[0], costs[1] if exporter is not None else None)


@contextlib.contextmanager
def _agent(folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    flags = [f"--web.listen-address=127.0.0.1:{port}", f"--path.ring-dir={folder}"]
    with serving([sys.executable, "-m", "rankscope_agent", *flags], port) as pid:
        yield pid, port


@contextlib.contextmanager
def _exporter(program: str) -> Iterator[tuple[int, int]]:
    port = free_port()
    with serving([program, f"--web.listen-address=127.0.0.1:{port}"], port) as pid:
        yield pid, port


def shares_of_a_core(servers: Sequence[tuple[int, int]], seconds: int) -> list[float]:
    """Scrape each server once a second; return each one's CPU time in per cent of a core."""
    before = [cpu_seconds(pid) for pid, _ in servers]
    begin = time.monotonic()
    for second in range(seconds):
        for _, port in servers:
            scrape(port)
        time.sleep(max(0.0, begin + second + 1 - time.monotonic()))
    lasted = time.monotonic() - begin
    after = [cpu_seconds(pid) for pid, _ in servers]
    return [(now - then) / lasted * 100 for now, then in zip(after, before, strict=True)]


def report(cost: AgentCost) -> str:
    """Write the figures and the goals."""
    lines = [_line("rankscope-agent", cost.agent)]
    if cost.exporter is None:
        lines.append(f"{EXPORTER} is not installed, so there is nothing to compare with")
    else:
        ratio = cost.agent.median_percent / cost.exporter.median_percent
        lines.append(_line("node_exporter", cost.exporter))
        lines.append(f"CPU {ratio:.2f}x node_exporter's, goal at most 1x")
    lines.append(f"memory goal in the network of the node: below {MEMORY_GOAL_MIB:.0f} MiB")
    return "\n".join(lines)


def _line(name: str, cost: Cost) -> str:
    low, high = min(cost.cpu_percent), max(cost.cpu_percent)
    return (
        f"{name:16} {cost.median_percent:5.2f} % of a core ({low:.2f} to {high:.2f}),"
        f" {cost.memory_mib:5.1f} MiB resident, {cost.series} series"
    )


if __name__ == "__main__":
    print(report(measure()))
