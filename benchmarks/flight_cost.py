"""Cost of fetching a full Flight Recorder, for the rank and the agent, and its budget.

The rank is a separate process with torch's worker server and 2,000 recorded collectives. The budget
counts the time that the agent waits for the dump and reads it: it must not be less than the CPU
time of both. The rank's interpreter measures its longest pause in that time, compared with one
without a pull.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.processes import cpu_seconds

from rankscope_agent.sources.flight_recorder.budget import CORE_SHARE, period
from rankscope_agent.sources.flight_recorder.launches import read_launches
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.flight_recorder.worker_server import fetch

ENTRIES = 2_000
PULLS = 15
NODE_RANKS = 8
PAUSE_SECONDS = 0.5  # in which the rank's interpreter is watched without a pull
NAME = "rank.sock"


@dataclass(frozen=True, slots=True)
class FlightCost:
    """Medians over pulls, in milliseconds.

    Args:
        entries: in a dump.
        rank: CPU time of the rank's process, minus its use without a pull.
        agent: CPU time of the agent's thread.
        charged: the charge to the budget.
        pause: longest pause of the rank's interpreter in a pull.
        idle_pause: the same in an equal time without one.
    """

    entries: int
    rank: float
    agent: float
    charged: float
    pause: float
    idle_pause: float


def be_rank(socket: str, meeting: str) -> None:
    """Record collectives, serve them, and print the longest pause since the last request."""
    import threading

    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _WorkerServer

    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    tensor = torch.zeros(8)
    for _ in range(ENTRIES + 100):
        dist.all_reduce(tensor)
    server = _WorkerServer(socket)
    longest = [0.0]

    def watch() -> None:
        last = time.perf_counter()
        while True:
            time.sleep(0.001)
            now = time.perf_counter()
            longest[0], last = max(longest[0], now - last), now

    threading.Thread(target=watch, daemon=True).start()
    for _ in sys.stdin:
        print(longest[0], flush=True)
        longest[0] = 0.0
    print(f"served {server}", flush=True)
    os._exit(0)  # a worker server is not to be shut down


def _ask(rank: subprocess.Popen[str]) -> float:
    """Return the longest pause since the last request, in seconds."""
    if rank.stdin is None or rank.stdout is None:
        raise RuntimeError("the rank has no pipes")
    rank.stdin.write("\n")
    rank.stdin.flush()
    return float(rank.stdout.readline())


def _pull(directory: int, windows: FlightWindows) -> tuple[int, float, float]:
    """Pull like the collector; return entries, CPU seconds and the charge to the budget."""
    began, cpu = time.monotonic(), time.thread_time()
    bodies: list[bytes] = []
    fetch(directory, NAME, os.getuid(), bodies.append)
    dump = max((read_launches(body) for body in bodies), key=lambda read: len(read.launches))
    windows.add(("bench", ""), "bench", 0, 0, time.time_ns(), dump)
    return len(dump.launches), time.thread_time() - cpu, time.monotonic() - began


def measure(pulls: int = PULLS) -> FlightCost:
    """Start a rank and pull from it."""
    with tempfile.TemporaryDirectory() as folder:
        code = (
            "from benchmarks.flight_cost import be_rank;"
            f"be_rank('{folder}/{NAME}', 'file://{folder}/meeting')"
        )
        rank = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _ask(rank)  # answered once it is ready
            return _cost([_measured(rank, directory) for _ in range(pulls)])
        finally:
            os.close(directory)
            rank.kill()
            rank.wait()


def _measured(rank: subprocess.Popen[str], directory: int) -> Sequence[float]:
    _ask(rank)
    before = cpu_seconds(rank.pid)
    time.sleep(PAUSE_SECONDS)
    used_idle = (cpu_seconds(rank.pid) - before) / PAUSE_SECONDS
    idle_pause, before = _ask(rank), cpu_seconds(rank.pid)
    entries, agent, charged = _pull(directory, FlightWindows())
    used = cpu_seconds(rank.pid) - before - used_idle * charged
    return entries, used, agent, charged, _ask(rank), idle_pause


def _cost(rows: Sequence[Sequence[float]]) -> FlightCost:
    columns = [median(column) for column in zip(*rows, strict=True)]
    return FlightCost(round(columns[0]), *(1e3 * value for value in columns[1:]))


def report(cost: FlightCost) -> str:
    """Return the figures, and the consequences for a node."""
    look = NODE_RANKS * cost.charged / 1e3
    used = NODE_RANKS * (cost.rank + cost.agent) / 1e3
    seconds = period(look)
    rows = (
        ("collectives in a dump", cost.entries, ""),
        ("CPU of the rank per pull", cost.rank, "ms"),
        ("CPU of the agent per pull", cost.agent, "ms"),
        ("charged to the budget per pull", cost.charged, "ms"),
        ("charged / used, goal at least 1", cost.charged / (cost.rank + cost.agent), "x"),
        ("longest pause of the rank's interpreter", cost.pause, "ms"),
        ("the same without a pull", cost.idle_pause, "ms"),
        ("eight ranks are asked every", seconds, "s"),
        (f"of a core, goal at most {100 * CORE_SHARE:.0f}", 100 * used / seconds, "%"),
    )
    return "\n".join(f"{name:42} {value:10.2f} {unit}" for name, value, unit in rows)


if __name__ == "__main__":
    print(report(measure()))
