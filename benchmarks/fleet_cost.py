"""Cost of a verdict over many agents: pages of 512 nodes, twice, and records of 4,096 ranks.

A few of the agents do not answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet_server import RANKS_OF_A_NODE, SLOW, fleet
from benchmarks.processes import memory_mib

from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.reports import html as html_report
from rankscope_analyzers.stragglers.diagnosis import diagnose_each

AGENTS, STEPS = 512, 120
DEAD = 8
STEP_SECONDS = 1.2


@dataclass(frozen=True, slots=True)
class FleetCost:
    """Seconds of wall and CPU time from the first request to the page, and peak memory."""

    wall: float
    cpu: float
    memory_mib: float
    page_bytes: int
    named: tuple[int, ...]


def measure() -> FleetCost:
    """Query all agents once, judge and write the report."""
    with fleet(AGENTS, STEPS, STEP_SECONDS) as urls:
        return _ask([*urls, *(f"http://127.0.0.1:9/{number}" for number in range(DEAD))])


def _ask(urls: Sequence[str]) -> FleetCost:
    cpu, wall = time.process_time(), time.perf_counter()
    found = gather.of_agents(urls, None, 0.0)
    reports = job_reports.reports(diagnose_each(found.jobs), found.evidence, time.time())
    page = html_report.write(reports)
    took = time.perf_counter() - wall, time.process_time() - cpu
    (report,) = reports
    named = report.incidents[0].where.ranks if report.incidents else ()
    return FleetCost(*took, memory_mib(_own_pid(), "VmHWM"), len(page.encode()), named)


def _own_pid() -> int:
    return int(Path("/proc/self/stat").read_text().split()[0])


def report(cost: FleetCost) -> str:
    """Return the figures."""
    return (
        f"{AGENTS} agents, {AGENTS * RANKS_OF_A_NODE} ranks, {STEPS} steps, {DEAD} agents dead\n"
        f"  from the first question to the page: {cost.wall:.1f} s wall (3 s of it between two"
        f" looks), {cost.cpu:.1f} s CPU (bar 10 s)\n"
        f"  {cost.page_bytes / 2**20:.1f} MiB of HTML (bar 8), {cost.memory_mib:.0f} MiB peak;"
        f" named: {cost.named} (slow: {SLOW})\n"
    )
