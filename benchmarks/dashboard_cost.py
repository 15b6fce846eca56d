"""Cost of every dashboard query for one large job.

A real Prometheus scrapes pages that are copies of one real agent's page, renamed and with counters
that advance, for four minutes, and stops scraping before it is queried. Queries get as many points
as an hour has at Grafana's 15 s, with four scrapes in each window, like its rate interval.
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
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.processes import cpu_seconds
from benchmarks.ring_writer import training

from rankscope_analyzers.demo.free_ports import free_port
from rankscope_dashboards import dashboard_files
from rankscope_dashboards.boards import debug, on_call
from rankscope_dashboards.parts.dashboard import Dashboard

RANKS = 8
"""Ranks of each node, as it has GPUs."""

POINTS = 240
"""Points: an hour of scrapes of 15 s; Grafana requests about as many on a panel of half a
screen."""

SETTLE_SECONDS = 5.0
"""Seconds after the last scrape: Prometheus' remaining work should not count as a query's."""

BAR_SECONDS = 2.0
JOB = "research/llama-70b"
MOST_SERIES = 20
BUCKETS = ("Step times",)
"""Heat maps, whose rows are buckets."""

SCENARIO = "h100x8:thermal@2"
"""One GPU on each node is hot, so that queries for the worst have many to choose from."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """How large the job is and what is queried.

    Args:
        nodes: of eight ranks each.
        scrape_seconds: between two scrapes of a node.
        rounds: how often each query is sent.
        views: the dashboards.
        whole: True if pages hold all series, False for only those in the dashboards.
    """

    nodes: int
    scrape_seconds: int
    rounds: int
    views: tuple[Callable[[str], Dashboard], ...]
    whole: bool


MIDDLE = Fleet(64, 2, 5, (debug.dashboard,), True)
LARGEST = Fleet(2048, 20, 3, (debug.dashboard, on_call.dashboard), False)
"""16,384 ranks. All of their series, 2.7 million, would take the server some 17 GiB."""

LINE = re.compile(r"^(rankscope_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
"""A variable of Grafana; `$1` in label_replace is not one."""

GROWING = ("_total", "_sum", "_count", "_bucket")


@dataclass(frozen=True, slots=True)
class QueryCost:
    """Medians of a query: wall time and the server's CPU time, in seconds.

    Args:
        panel: its title.
        seconds: until the response was read.
        cpu: the server's.
        series: how many the response has.
        refused: the server's reason if it refused.
    """

    panel: str
    seconds: float
    cpu: float
    series: int
    refused: str


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    panel: str
    expression: str
    instant: bool


def measure(size: Fleet) -> list[QueryCost]:
    """Send every query several times, alternately."""
    with tempfile.TemporaryDirectory() as folder:
        queries = _queries(size)
        spoken_of = " ".join(query.expression for query in queries)
        template = _page(Path(folder), "" if size.whole else spoken_of)
        with (
            _fleet(template, size.nodes) as fleet,
            _prometheus(Path(folder), fleet.port, size) as (url, pid),
        ):
            time.sleep(POINTS)
            fleet.stopped.set()
            end = int(time.time()) - 1
            time.sleep(SETTLE_SECONDS)
            return ask_all(url, pid, end, size)


def _queries(size: Fleet) -> list[Query]:
    models = [json.loads(dashboard_files.text(view("").auto_panel_ids())) for view in size.views]
    values = {
        "__rate_interval": f"{4 * size.scrape_seconds}s", "__range": f"{POINTS}s", "job_id": JOB
    }  # fmt: skip
    return [
        Query(
            panel["title"],
            VARIABLE.sub(lambda match: values.get(match[1], ".*"), target["expr"]),
            target["instant"],
        )
        for model in models
        for panel in model["panels"]
        for target in panel.get("targets", ())
    ]


def ask_all(url: str, pid: int, end: int, size: Fleet) -> list[QueryCost]:
    """Send every query of the dashboards, one at a time."""
    queries = _queries(size)
    asked = [[_ask(url, pid, query, end) for query in queries] for _ in range(size.rounds)]
    return [
        QueryCost(
            query.panel,
            statistics.median(cost.seconds for cost in costs),
            statistics.median(cost.cpu for cost in costs),
            max(cost.series for cost in costs),
            next((cost.refused for cost in costs if cost.refused), ""),
        )
        for query, costs in zip(queries, zip(*asked, strict=True), strict=True)
    ]


def _ask(url: str, pid: int, query: Query, end: int) -> QueryCost:
    span = {"time": end} if query.instant else {"start": end - POINTS, "end": end, "step": 1}
    data = urllib.parse.urlencode({"query": query.expression, **span}).encode()
    path = "query" if query.instant else "query_range"
    refused, series, cpu, begin = "", 0, cpu_seconds(pid), time.perf_counter()
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}", data, timeout=180) as answer:  # noqa: S310 - loopback
            text = answer.read()
    except urllib.error.HTTPError as error:
        refused = error.read().decode()
    seconds, cpu = time.perf_counter() - begin, cpu_seconds(pid) - cpu
    if not refused:
        series = len(json.loads(text)["data"]["result"])
    return QueryCost(query.panel, seconds, cpu, series, refused)


def _page(folder: Path, spoken_of: str) -> str:
    """Return an agent's page for a node with eight GPUs and eight ranks that train.

    Args:
        folder: an empty one.
        spoken_of: a text; series that it does not mention are left out. Empty: all are kept.
    """
    rings = folder / "rings"
    rings.mkdir()
    with training(rings, RANKS, steps_per_second=20):
        time.sleep(2)
        command = [sys.executable, "-m", "rankscope_agent", "--once", f"--simulate={SCENARIO}"]
        command += [f"--path.ring-dir={rings}", f"--path.kubelet={folder}"]
        command += [f"--path.state={folder}", f"--path.pod-logs={folder}"]
        page = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "".join(
        f"{match[0]}\n" for match in LINE.finditer(page) if not spoken_of or match[1] in spoken_of
    )


class _Node:
    """One node's page: its own names are replaced, and counters grow with time."""

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
        """Return the page in its present state."""
        passed = 1 + (time.monotonic() - self.begin) / 60
        grown = (f"{series} {value * passed:.6f}\n" for series, value in self.growing)
        return "".join((*self.still, *grown))


@dataclass(frozen=True, slots=True)
class _Fleet:
    port: int
    stopped: threading.Event


@contextlib.contextmanager
def _fleet(template: str, count: int) -> Iterator[_Fleet]:
    stopped = threading.Event()
    nodes = [_Node(template, number) for number in range(count)]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(ConnectionError):  # a scrape that timed out
                self._answer()

        def _answer(self) -> None:
            if stopped.is_set():
                self.send_error(503)
                return
            body = nodes[int(self.path.rpartition("/")[2])].text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield _Fleet(server.server_port, stopped)
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _prometheus(folder: Path, fleet: int, size: Fleet) -> Iterator[tuple[str, int]]:
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
        for number in range(size.nodes)
    ]
    config = {
        "global": {
            "scrape_interval": f"{size.scrape_seconds}s",
            "scrape_timeout": f"{size.scrape_seconds}s",
        },
        "scrape_configs": scrapes,
    }
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


def report(size: Fleet, costs: list[QueryCost]) -> str:
    """Return the slowest queries and their limit, and those that were refused or draw too much."""
    slowest = sorted(costs, key=lambda cost: -cost.seconds)[:6]
    lines = "".join(
        f"  {cost.seconds:5.2f} s wall, {cost.cpu:5.2f} s CPU  {cost.panel}\n" for cost in slowest
    )
    empty = sorted({cost.panel for cost in costs if not (cost.series or cost.refused)})
    many = [cost.panel for cost in costs if cost.series > MOST_SERIES and cost.panel not in BUCKETS]
    refused = [f"{cost.panel}: {cost.refused}" for cost in costs if cost.refused]
    return (
        f"{len(costs)} queries, {size.nodes * RANKS} ranks on {size.nodes} nodes, {POINTS} points,"
        f" median of {size.rounds}; the slowest (bar {BAR_SECONDS} s each with 512 ranks):\n{lines}"
        f"  more than {MOST_SERIES} series: {many or 'none'}; refused: {refused or 'none'}\n"
        f"  without data: {', '.join(empty) or 'none'}\n"
    )
