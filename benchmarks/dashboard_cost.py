"""Every query of the debug dashboard, asked for a job of 512 ranks on 64 nodes.

A real Prometheus scrapes 64 pages that are one real agent's page under other names, whose counters
advance, for four minutes, and stops before it is asked. Queries get as many points as an hour has
at Grafana's 15 s, with four scrapes in each window, as its rate interval has.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.processes import cpu_seconds, free_port
from benchmarks.ring_writer import training

from rankscope_dashboards import dashboard_files, debug

NODES, RANKS = 64, 8
POINTS = 240
"""An hour of scrapes of 15 s; Grafana asks for about as many points on a panel of half a screen."""

ROUNDS = 5
SETTLE_SECONDS = 5.0
"""After the last scrape: what Prometheus still does with it should not count as a query's."""

BAR_SECONDS = 2.0
JOB = "research/llama-70b"

LINE = re.compile(r"^(rankscope_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
GROWING = ("_total", "_sum", "_count", "_bucket")


@dataclass(frozen=True, slots=True)
class QueryCost:
    """Medians of a query: wall time and the server's CPU time, in seconds."""

    panel: str
    expression: str
    seconds: float
    cpu: float


def measure() -> list[QueryCost]:
    """Ask every query `ROUNDS` times, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        template = _page(Path(folder))
        with _fleet(template) as fleet, _prometheus(Path(folder), fleet.port) as (url, pid):
            time.sleep(POINTS)
            fleet.stopped.set()
            end = int(time.time()) - 1
            time.sleep(SETTLE_SECONDS)
            return _ask_all(url, pid, end)


def _ask_all(url: str, pid: int, end: int) -> list[QueryCost]:
    model = json.loads(dashboard_files.text(debug.dashboard("").auto_panel_ids()))
    queries = [
        (panel["title"], target["instant"], _filled(target["expr"]))
        for panel in model["panels"]
        for target in panel.get("targets", ())
    ]
    took: dict[str, list[tuple[float, float]]] = {query: [] for _, _, query in queries}
    for _ in range(ROUNDS):
        for _, instant, query in queries:
            before = cpu_seconds(pid)
            wall = _ask(url, query, instant, end)
            took[query].append((wall, cpu_seconds(pid) - before))
    return [
        QueryCost(panel, query, *map(statistics.median, zip(*took[query], strict=True)))
        for panel, _, query in queries
    ]


def _filled(expression: str) -> str:
    values = {"__rate_interval": "8s", "__range": f"{POINTS}s", "job_id": JOB}
    return re.sub(r"\$(\w+)", lambda match: values.get(match[1], ".*"), expression)


def _ask(url: str, query: str, instant: bool, end: int) -> float:
    span = {"time": end} if instant else {"start": end - POINTS, "end": end, "step": 1}
    data = urllib.parse.urlencode({"query": query, **span}).encode()
    begin = time.perf_counter()
    path = "query" if instant else "query_range"
    with urllib.request.urlopen(f"{url}/api/v1/{path}", data, timeout=60) as answer:  # noqa: S310 - loopback
        answer.read()
    return time.perf_counter() - begin


def _page(folder: Path) -> str:
    """Return what an agent says of a node with eight GPUs and eight ranks that train."""
    rings = folder / "rings"
    rings.mkdir()
    with training(rings, RANKS, steps_per_second=20):
        time.sleep(2)
        command = [sys.executable, "-m", "rankscope_agent", "--once", "--simulate=h100x8"]
        command += [f"--path.ring-dir={rings}", f"--path.kubelet={folder}"]
        command += [f"--path.state={folder}", f"--path.pod-logs={folder}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class _Node:
    """One node's page: what is its own is renamed, and counters grow with time."""

    def __init__(self, template: str, number: int) -> None:
        self.still: list[str] = []
        self.growing: list[tuple[str, float]] = []
        for name, labels, value in LINE.findall(template):
            if 'job_id="' in labels and f'job_id="{JOB}"' not in labels:
                continue  # another job of this machine
            own = re.sub(r'uuid="GPU-', f'uuid="GPU-{number:04d}-', labels)
            own = re.sub(
                r'(?<=[{,])rank="(\d+)"',
                lambda match: f'rank="{number * RANKS + int(match[1])}"',
                "{" + own,
            )
            if name.endswith(GROWING):
                self.growing.append((f"{name}{own}}}", max(float(value), 1.0)))
            else:
                self.still.append(f"{name}{own}}} {value}\n")
        self.begin = time.monotonic()

    def text(self) -> str:
        """Return the page as it is now."""
        passed = 1 + (time.monotonic() - self.begin) / 60
        grown = (f"{series} {value * passed:.6f}\n" for series, value in self.growing)
        return "".join((*self.still, *grown))


@dataclass(frozen=True, slots=True)
class _Fleet:
    port: int
    stopped: threading.Event


@contextlib.contextmanager
def _fleet(template: str) -> Iterator[_Fleet]:
    stopped = threading.Event()
    nodes = [_Node(template, number) for number in range(NODES)]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if stopped.is_set():
                self.send_error(503)
                return
            body = nodes[int(self.path.rpartition("/")[2])].text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):  # a scrape that timed out
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield _Fleet(server.server_port, stopped)
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _prometheus(folder: Path, fleet: int) -> Iterator[tuple[str, int]]:
    program = shutil.which("prometheus")
    if program is None:
        raise RuntimeError(
            "prometheus is not installed: apt-get install prometheus, or make servers"
        )
    scrapes = [
        {
            "job_name": f"node-{number}",
            "metrics_path": f"/{number}",
            "honor_labels": True,
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{fleet}"],
                    "labels": {"node": f"gpu-{number:02d}", "cluster": "bench"},
                }
            ],
            "metric_relabel_configs": [
                {"target_label": "node", "replacement": f"gpu-{number:02d}"}
            ],
        }
        for number in range(NODES)
    ]
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": scrapes
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://{address}", process.pid
    finally:
        process.kill()
        process.wait()


def report(costs: list[QueryCost]) -> str:
    """Return the slowest queries and their bar."""
    slowest = sorted(costs, key=lambda cost: -cost.seconds)[:5]
    lines = "".join(
        f"  {cost.seconds:5.2f} s wall, {cost.cpu:5.2f} s CPU  {cost.panel}\n" for cost in slowest
    )
    return (
        f"{len(costs)} queries of the debug view, {NODES * RANKS} ranks on {NODES} nodes, {POINTS}"
        f" points, median of {ROUNDS}; the slowest (bar {BAR_SECONDS} s each):\n{lines}"
    )
