"""What a verdict over many agents costs: pages of 512 nodes, twice, and records of 4,096 ranks.

Agents are answers of one server in a process of its own, each under a path; a few of them are dead.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.processes import free_port, memory_mib

from rankscope_analyzers import evidence_sources, html_report, job_reports
from rankscope_analyzers.diagnosis import diagnosis

AGENTS, RANKS_OF_A_NODE, STEPS = 512, 8, 120
DEAD = 8
SLOW = 2717
STEP_SECONDS = 1.2

SERVER = """
import http.server, json, re, socketserver, sys, time
folder, port = sys.argv[1], int(sys.argv[2])
page = open(folder + "/page").read()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        number, path = re.match(r"/(\\\\d+)(/[^?]*)", self.path).groups()
        number = int(number)
        body = answer(number, path).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *_):
        return
def answer(number, path):
    if path == "/metrics":
        return page.replace("@NODE@", f"gpu-{number:03d}").replace("@TIME@", str(time.time())) \\\\
            .replace("@COUNT@", f"{time.time():.3f}") + ranks(number)
    if path == "/healthz":
        return json.dumps({"node": f"gpu-{number:03d}", "unobserved": {}})
    if path == "/api/v1/ranks":
        return json.dumps({"ranks": [{"job_id": "t/j", "rank": number * 8 + n, "world_size": %d,
            "alive": True} for n in range(8)]})
    return open(f"{folder}/steps-{number}").read()
def ranks(number):
    return "".join(f'rankscope_rank_info{{job_id="t/j",rank="{number * 8 + n}",'
        f'node="gpu-{number:03d}",local_rank="{n}",uuid="GPU-{number:03d}-{n}"}} 1\\\\n'
        for n in range(8))
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256
Server(("127.0.0.1", port), Handler).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class FleetCost:
    """Seconds of wall and CPU time from the first question to the page, and peak memory."""

    wall: float
    cpu: float
    memory_mib: float
    page_bytes: int
    named: tuple[int, ...]


def measure() -> FleetCost:
    """Ask all agents once, judge and write the report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_answers(folder)
        port = free_port()
        code = SERVER.replace("\\\\", "\\") % (AGENTS * RANKS_OF_A_NODE)
        server = subprocess.Popen([sys.executable, "-c", code, name, str(port)])
        try:
            time.sleep(1.0)
            return _ask(port)
        finally:
            server.kill()
            server.wait()


def _ask(port: int) -> FleetCost:
    urls = [f"http://127.0.0.1:{port}/{number}" for number in range(AGENTS)]
    urls += [f"http://127.0.0.1:9/{number}" for number in range(DEAD)]
    cpu, wall = time.process_time(), time.perf_counter()
    found = evidence_sources.of_agents(urls, None, 0.0)
    reports = job_reports.reports(
        [diagnosis(job) for job in found.jobs], found.evidence, time.time()
    )
    page = html_report.write(reports)
    took = time.perf_counter() - wall, time.process_time() - cpu
    (report,) = reports
    named = report.incidents[0].where.ranks if report.incidents else ()
    return FleetCost(*took, memory_mib(_own_pid(), "VmHWM"), len(page.encode()), named)


def _own_pid() -> int:
    return int(Path("/proc/self/stat").read_text().split()[0])


def _write_answers(folder: Path) -> None:
    lines = ["rankscope_snapshot_timestamp_seconds @TIME@\n"]
    for gpu in range(RANKS_OF_A_NODE):
        labels = f'gpu="{gpu}",uuid="@NODE@-{gpu}",pci="0000:{gpu:02x}:00"'.replace(
            'uuid="@NODE@', 'uuid="GPU-@NODE@'
        )
        lines.append(f'rankscope_gpu_info{{{labels},model="H100"}} 1\n')
        for name, extra, value in (
            ("utilization_ratio", "", "0.98"),
            ("clock_hertz", ',domain="sm"', "1.98e9"),
            ("power_watts", "", "640"),
            ("power_limit_watts", ',kind="enforced"', "700"),
            ("temperature_celsius", ',sensor="core"', "60"),
            ("lost", "", "0"),
        ):
            lines.append(f"rankscope_gpu_{name}{{{labels}{extra}}} {value}\n")
        port = f'device="mlx5_{gpu}",port="1"'
        lines.append(f"rankscope_rdma_port_state{{{port}}} 4\n")
        lines.append(f"rankscope_rdma_port_transmit_bytes_total{{{port}}} @COUNT@\n")
        lines.extend(
            f'rankscope_rdma_hw_events_total{{{port},event="event_{event}"}} 0\n'
            for event in range(12)
        )
    (folder / "page").write_text("".join(lines))
    random = np.random.default_rng(0)
    for number in range(AGENTS):
        (folder / f"steps-{number}").write_text(_steps(number, random))


def _steps(number: int, random: np.random.Generator) -> str:
    ranks = np.arange(number * RANKS_OF_A_NODE, (number + 1) * RANKS_OF_A_NODE)
    step, rank = np.meshgrid(np.arange(STEPS), ranks, indexing="ij")
    compute = 1.0 + 0.01 * np.abs(random.standard_normal(step.shape))
    late = step >= STEPS // 2
    compute[late & (rank == SLOW)] += 0.5
    whole = np.where(late, 1.75, 1.25)
    frame = pd.DataFrame(
        {
            "job_id": "t/j",
            "rank": rank.ravel(),
            "step": step.ravel(),
            "t_start_unix_seconds": time.time() - 200 + STEP_SECONDS * step.ravel(),
            "step_seconds": whole.ravel(),
            "data_seconds": 0.02,
            "compute_seconds": compute.ravel(),
            "sync_seconds": (whole - 0.02 - compute).ravel(),
            "node": f"gpu-{number:03d}",
        }
    )
    rows = frame.to_numpy(dtype=object).tolist()
    return json.dumps({"columns": list(frame.columns), "rows": rows, "truncated": False})


def report(cost: FleetCost) -> str:
    """Return the figures."""
    return (
        f"{AGENTS} agents, {AGENTS * RANKS_OF_A_NODE} ranks, {STEPS} steps, {DEAD} agents dead\n"
        f"  from the first question to the page: {cost.wall:.1f} s wall (3 s of it between two"
        f" looks), {cost.cpu:.1f} s CPU (bar 10 s)\n"
        f"  {cost.page_bytes / 2**20:.1f} MiB of HTML (bar 8), {cost.memory_mib:.0f} MiB peak;"
        f" named: {cost.named} (slow: {SLOW})\n"
    )
