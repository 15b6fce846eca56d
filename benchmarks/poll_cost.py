"""The cost for an agent of a watch that follows the steps of its eight ranks.

Two agents read the same rings, to which each rank writes a record a second. Each has a separate
watch with default settings: it requests steps every 5 s and everything else every 30 s. One watch
is stopped while the other one runs, alternately, so that the two agents differ only by the
requests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands import environment
from benchmarks.processes import cpu_seconds, scrape, serving
from benchmarks.ring_writer import training

from rankscope_analyzers.demo.free_ports import free_port

RANKS = 8
STEPS_PER_SECOND = 1.0
ROUNDS, ROUND_SECONDS = 10, 30
FIRST_SECONDS = 180.0
"""Seconds until a watch has judged all records, at most: its first requests are for an hour of
them."""

BAR_PERCENT = 0.2


@dataclass(frozen=True, slots=True)
class PollCost:
    """CPU time of an agent as per cent of a core, a figure for each round."""

    asked: tuple[float, ...]
    left_alone: tuple[float, ...]

    @property
    def more(self) -> tuple[float, ...]:
        """Return what the agent took more that was queried."""
        return tuple(one - other for one, other in zip(self.asked, self.left_alone, strict=True))


def measure(rounds: int = ROUNDS, seconds: float = ROUND_SECONDS) -> PollCost:
    """Run both agents and both watches; only one of these at a time."""
    asked, left_alone = [], []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankscope-bench-")))
        stack.enter_context(training(folder, RANKS, STEPS_PER_SECOND))
        agents, watches = [], []
        for _ in range(2):
            port = free_port()
            agents.append(stack.enter_context(_agent(folder, port)))
            watches.append(stack.enter_context(_watch(port)))
        for number in range(rounds):
            now = number % 2
            os.kill(watches[1 - now], signal.SIGSTOP)
            os.kill(watches[now], signal.SIGCONT)
            spent = _spent(agents, seconds)
            asked.append(spent[now])
            left_alone.append(spent[1 - now])
    return PollCost(tuple(asked), tuple(left_alone))


@contextlib.contextmanager
def _agent(folder: Path, port: int) -> Iterator[int]:
    flags = [f"--web.listen-address=127.0.0.1:{port}", f"--path.ring-dir={folder}"]
    with serving([sys.executable, "-m", "rankscope_agent", *flags], port) as pid:
        yield pid


@contextlib.contextmanager
def _watch(agent: int) -> Iterator[int]:
    """Run a watch of an agent, and wait until it has requested all records."""
    port = free_port()
    command = [sys.executable, "-m", "rankscope_analyzers", "watch"]
    command += [f"--agent=http://127.0.0.1:{agent}", f"--web.listen-address=127.0.0.1:{port}"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment(), stdout=quiet, stderr=quiet) as watch:
        try:
            await_evaluation(port)
            yield watch.pid
        finally:
            watch.kill()


def await_evaluation(port: int) -> None:
    """Wait until a watch has judged its agents' records.

    Raises:
        RuntimeError: it does not in time.
    """
    deadline = time.monotonic() + FIRST_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if b'rankscope_watch_agents{state="answering"} 1' in scrape(port):
                return
        time.sleep(0.5)
    raise RuntimeError(f"the watch on port {port} has judged nothing within {FIRST_SECONDS} s")


def _spent(pids: list[int], seconds: float) -> list[float]:
    """Return the CPU time of processes over some time, in per cent of a core."""
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    return [
        (cpu_seconds(pid) - then) / lasted * 100 for pid, then in zip(pids, before, strict=True)
    ]


def report(cost: PollCost) -> str:
    """Return the figures with the bar."""
    low, high = min(cost.more), max(cost.more)
    return "\n".join(
        [
            f"agent, {RANKS} ranks at a step a second, {len(cost.more)} rounds:"
            f" {statistics.median(cost.left_alone):.2f} % of a core left alone,"
            f" {statistics.median(cost.asked):.2f} % asked by a watch every 5 s",
            f"  {statistics.median(cost.more):+.2f} % of a core ({low:+.2f} to {high:+.2f}),"
            f" at most +{BAR_PERCENT}",
        ]
    )
