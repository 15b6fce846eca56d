"""How the agent's CPU time and memory grow with the ranks and GPUs of its node.

All agents run at the same time and are scraped alternately each second; each differs from the first
one in one respect.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agent_cost import Cost, shares_of_a_core
from benchmarks.processes import memory_mib, series_on, serving
from benchmarks.ring_writer import training

from rankscope_analyzers.demo.free_ports import free_port

STEPS_PER_SECOND = 2.0
ROUNDS, ROUND_SECONDS = 4, 8
WARM_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Node:
    """The load of an agent: ranks that train, and simulated GPUs."""

    ranks: int
    gpus: int


NODES: Sequence[Node] = (Node(8, 0), Node(32, 0), Node(64, 0), Node(8, 8), Node(8, 16))


@contextlib.contextmanager
def _running(node: Node, folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    for name in ("rings", "kubelet", "logs"):
        (folder / name).mkdir(parents=True)
    command = [sys.executable, "-m", "rankscope_agent", f"--web.listen-address=127.0.0.1:{port}"]
    command += [f"--path.ring-dir={folder}/rings", f"--path.kubelet={folder}/kubelet"]
    command += [f"--path.pod-logs={folder}/logs", f"--path.state={folder}"]
    command += [f"--simulate=h100x{node.gpus}"] if node.gpus else []
    with training(folder / "rings", node.ranks, STEPS_PER_SECOND), serving(command, port) as pid:
        yield pid, port


def measure() -> Sequence[Cost]:
    """Run all agents and scrape them alternately."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(_running(node, Path(name, str(number))))
            for number, node in enumerate(NODES)
        ]
        time.sleep(WARM_SECONDS)
        rounds = [shares_of_a_core(servers, ROUND_SECONDS) for _ in range(ROUNDS)]
        return [
            Cost(tuple(percents), memory_mib(pid, "VmRSS"), series_on(port))
            for (pid, port), percents in zip(servers, zip(*rounds, strict=True), strict=True)
        ]


def report(costs: Sequence[Cost]) -> str:
    """Return a table in Markdown."""
    rows = ["| ranks | GPUs | % of a core | MiB resident | series |", "|---|---|---|---|---|"]
    for node, cost in zip(NODES, costs, strict=True):
        percent = statistics.median(cost.cpu_percent)
        rows.append(
            f"| {node.ranks} | {node.gpus} | {percent:.2f} | {cost.memory_mib:.1f} |"
            f" {cost.series} |"
        )
    return "\n".join(rows)
