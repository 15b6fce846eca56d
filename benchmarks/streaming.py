"""The cost of a watch that follows steps, and how soon it reports: CPU, memory, steps.

The short form has 256 agents and takes two minutes, as does `streaming-tls`, in which they accept
connections only with TLS and a token; `streaming-2048` is the full one, for a machine that does
nothing else.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from benchmarks.commands import environment
from benchmarks.processes import START_SECONDS, cpu_seconds, memory_mib, scrape
from benchmarks.stream_server import (
    AGENTS_OF_A_JOB,
    FAULT_SECONDS,
    RANKS_OF_A_NODE,
    fault_of,
    hangs,
)

from rankscope_analyzers.demo.free_ports import free_port

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from certificates import Authority

SHORT, FULL = 256, 2048
WATCHED_SECONDS, WATCHED_LARGE_SECONDS = 75.0, 170.0
"""Seconds after the faults begin; more for a fleet that is evaluated as a whole every 100 s."""

BARS = {"rank": 20, "job": 45}
"""Steps from the beginning of a fault to its incident, in the median."""


@dataclass(frozen=True, slots=True)
class StreamCost:
    """The cost and results of a watch.

    Args:
        cpu: seconds per second after all agents were read.
        resident: MiB at the end, and at most.
        steps: from the beginning of each fault to its incident, by kind of fault.
        missed: faults without an incident, by kind of fault.
        false: incidents of jobs without a fault.
        doubled: pairs of incident and number that are in the log twice.
        unobserved: jobs that the watch reports as partly unseen, and those with an agent that never
            answers.
    """

    agents: int
    cpu: float
    resident: tuple[float, float]
    steps: Mapping[str, Sequence[float]]
    missed: Mapping[str, int]
    false: int
    doubled: int
    unobserved: tuple[int, int]


def measure(agents: int = SHORT, *, secured: bool = False) -> StreamCost:
    """Watch a fleet in which faults begin.

    Args:
        agents: how many.
        secured: True if they accept connections only with TLS and a token.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        access = _access(folder) if secured else Access()
        port, reported = stack.enter_context(_served(agents, access.of_server))
        log = folder / "incidents"
        scheme = "https" if secured else "http"
        urls = [f"{scheme}://127.0.0.1:{port}/{number}" for number in range(agents)]
        command = [sys.executable, "-m", "rankscope_analyzers", "watch"]
        page = free_port()
        command += [f"--incident-log={log}", f"--web.listen-address=127.0.0.1:{page}"]
        command += access.of_watch
        command += [word for url in urls for word in ("--agent", url)]
        fault = reported["began"] + FAULT_SECONDS
        with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as watch:
            try:
                time.sleep(max(0.0, fault - 5.0 - time.time()))
                watched = WATCHED_SECONDS if agents < FULL else WATCHED_LARGE_SECONDS
                before, began = cpu_seconds(watch.pid), time.monotonic()
                time.sleep(max(0.0, fault + watched - time.time()))
                cpu = (cpu_seconds(watch.pid) - before) / (time.monotonic() - began)
                memory = memory_mib(watch.pid, "VmRSS"), memory_mib(watch.pid, "VmHWM")
                named = _UNOBSERVED.findall(scrape(page, {"Accept": "text/plain"}).decode())
            finally:
                watch.kill()
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return _cost(agents, cpu, memory, lines, fault, _unobserved(agents, named))


_UNOBSERVED = re.compile(r'(?m)^rankscope_job_unobserved{job_id="([^"]*)"} [1-9]')


def _unobserved(agents: int, named: Sequence[str]) -> tuple[int, int]:
    """Return how many jobs of hanging agents the watch reports as partly unseen, of how many."""
    blind = {f"team/job-{n // AGENTS_OF_A_JOB:04d}" for n in range(agents) if hangs(n)}
    return len(blind.intersection(named)), len(blind)


@dataclass(frozen=True, slots=True)
class Access:
    """Arguments with which the server requires credentials, and the watch has them."""

    of_server: Sequence[str] = ()
    of_watch: Sequence[str] = ()


def _access(folder: Path) -> Access:
    authority = Authority(folder)
    pair = authority.sign("agents")
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    return Access(
        (str(pair.cert), str(pair.key), str(token)),
        (f"--ca-file={authority.cert}", f"--token-file={token}"),
    )


@contextlib.contextmanager
def _served(agents: int, access: Sequence[str]) -> Iterator[tuple[int, Mapping[str, float]]]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.stream_server", str(port), str(agents), *access]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as server:
        try:
            line = server.stdout.readline() if server.stdout else b""
            if not line:
                raise RuntimeError(f"{command} did not listen within {START_SECONDS} s")
            yield port, json.loads(line)
        finally:
            server.kill()


def _cost(
    agents: int,
    cpu: float,
    memory: tuple[float, float],
    lines: Sequence[Mapping[str, object]],
    fault: float,
    unobserved: tuple[int, int],
) -> StreamCost:
    first: dict[str, float] = {}
    for line in lines:
        if line["change"] == "opened":
            opened = datetime.fromisoformat(str(line["time"])).timestamp()
            first.setdefault(str(line["job_id"]), opened)
    steps: dict[str, list[float]] = {"rank": [], "job": []}
    missed, false = {"rank": 0, "job": 0}, 0
    for number in range(-(-agents // AGENTS_OF_A_JOB)):
        kind, at = fault_of(number), first.get(f"team/job-{number:04d}")
        if not kind:
            false += at is not None
        elif hangs(number * AGENTS_OF_A_JOB) and kind == "rank":
            continue  # the slow rank is on a node that nobody can see
        elif at is None:
            missed[kind] += 1
        else:
            length = {"rank": 1.35, "job": 1.28}[kind]
            steps[kind].append((at - fault) / length)
    pairs = [(line["incident"], line["number"]) for line in lines]
    doubled = len(pairs) - len(set(pairs))
    return StreamCost(agents, cpu, memory, steps, missed, false, doubled, unobserved)


def report(cost: StreamCost) -> str:
    """Return the figures with their bars."""
    lines = [
        f"rankscope watch, {cost.agents} agents x {RANKS_OF_A_NODE} ranks at a step a second,"
        " a tenth hanging, a tenth late",
        f"  {cost.cpu:.2f} s CPU per second (bar for 2,048 agents: 0.5),"
        f" {cost.resident[0]:.0f} MiB, {cost.resident[1]:.0f} MiB at most (bar: 1,024)",
    ]
    for kind, found in cost.steps.items():
        median = f"median {statistics.median(found):.0f}" if found else "none"
        worst = f", longest {np.max(found):.0f}" if found else ""
        lines.append(
            f"  faults of a {kind}: {median} steps to the incident{worst} (at most {BARS[kind]}),"
            f" {len(found)} found, {cost.missed[kind]} missed"
        )
    lines.append(f"  {cost.false} incidents of healthy jobs, {cost.doubled} reported twice")
    named, blind = cost.unobserved
    lines.append(
        f"  {named} of {blind} jobs with agents that hang are reported as unobserved in part"
    )
    return "\n".join(lines) + "\n"
