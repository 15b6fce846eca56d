"""Cost of one evaluation of all rules in a real Prometheus with a fleet of 16,384 ranks.

Prometheus scrapes a simulated fleet (rule_fleet.py) and evaluates the recording rules for a while.
Then both stop, and each expression is queried; the server's CPU time for all of them is the cost of
one evaluation. It does not include writing results to the database, but writing them as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.processes import await_answer, cpu_seconds, memory_mib
from benchmarks.rule_fleet import (
    NODES,
    RANKS_OF_A_NODE,
    filled,
    page_of_kubernetes,
    page_of_nodes,
    page_of_watch,
)

from rankscope_analyzers.demo.free_ports import free_port
from rankscope_dashboards.expressions.failures import HOURLY
from rankscope_dashboards.rules import alerts, recording_rules
from rankscope_dashboards.rules.rule_files import recording

NODES_OF_A_PAGE = 64
FIRST_NODES = range(0, NODES, NODES_OF_A_PAGE)
SCRAPE_SECONDS = 5
EVALUATION_SECONDS = 15
WARM_UP_SECONDS = 100
"""Seconds between scrapes, so that ranges of five minutes hold the twenty samples that they have at
a scrape every 15 s."""

ROUNDS = 7
"""Evaluations of all expressions one after another, of which the median counts. In one or two of
them the server collects the garbage of its 2 GiB, which gives the largest figure."""

PATIENCE_SECONDS = 180
AT_REST = 0.02
"""CPU seconds per second of a server that neither scrapes nor evaluates, and a little more."""

BAR = 1.2
COSTLIEST = 12
"""Rules that the report names."""


@dataclass(frozen=True, slots=True)
class RuleCost:
    """CPU seconds of each rule in each round, and the server's series and memory.

    `hourly` are the recording rules that are evaluated once an hour; `records` are the others.
    """

    records: tuple[Mapping[str, float], ...]
    alerts: tuple[Mapping[str, float], ...]
    hourly: tuple[Mapping[str, float], ...]
    series: int
    memory_mib: float

    @property
    def recording_seconds(self) -> float:
        """Return the cost of one evaluation of all recording rules."""
        return statistics.median(sum(one.values()) for one in self.records)

    @property
    def hourly_seconds(self) -> float:
        """Return the cost of one evaluation of the rules that are evaluated once an hour."""
        return statistics.median(sum(one.values()) for one in self.hourly)

    @property
    def rounds(self) -> tuple[float, ...]:
        """Return the cost of one evaluation of all other rules, in each round."""
        pairs = zip(self.records, self.alerts, strict=True)
        return tuple(sum(one.values()) + sum(other.values()) for one, other in pairs)

    @property
    def all_seconds(self) -> float:
        """Return the cost of one evaluation of all rules but those."""
        return statistics.median(self.rounds)

    def by_rule(self) -> Mapping[str, float]:
        """Return what each rule takes, the median of the rounds."""
        return {
            name: statistics.median(one[name] for one in rounds)
            for rounds in (self.records, self.alerts, self.hourly)
            for name in rounds[0]
        }


def measure() -> RuleCost:
    """Run Prometheus over the fleet.

    Raises:
        RuntimeError: prometheus is not installed, or it refuses an expression.
    """
    if shutil.which("prometheus") is None:
        raise RuntimeError("prometheus is not installed; `make test` as root installs it")
    with tempfile.TemporaryDirectory(prefix="rankscope-rules-") as name, _fleet() as target:
        folder = Path(name)
        _configure(folder, target)
        with _prometheus(folder) as (pid, port):
            time.sleep(WARM_UP_SECONDS)
            now = time.time()
            # Nothing else may take the server's time: no scrapes and no rules from here on.
            (folder / "prometheus.yml").write_text("{}")
            os.kill(pid, signal.SIGHUP)
            _await_rest(pid)
            series = _series(port)
            records, hourly = _recording(hourly=False), _recording(hourly=True)
            alerting = {alert.name: alert.expression for alert in alerts.ALERTS}
            spent = [
                [
                    {name: _cpu_of(pid, port, text, now) for name, text in rules.items()}
                    for rules in (records, alerting, hourly)
                ]
                for _ in range(ROUNDS)
            ]
            of_records, of_alerts, of_hours = zip(*spent, strict=True)
            return RuleCost(of_records, of_alerts, of_hours, series, memory_mib(pid, "VmRSS"))


def _recording(*, hourly: bool) -> Mapping[str, str]:
    """Return the expressions of recording rules: of those once an hour, or of all others."""
    return {
        " ".join((record.name, *record.labels.values())): record.expression
        for group in recording_rules.GROUPS
        for record in group.records
        if (group.interval == HOURLY) == hourly
    }


def report(cost: RuleCost) -> str:
    """Return the figures as lines."""
    every = sorted(cost.by_rule().items(), key=lambda one: -one[1])
    low, high = min(cost.rounds), max(cost.rounds)
    return "\n".join(
        (
            f"{NODES * RANKS_OF_A_NODE} ranks, {cost.series} series,"
            f" {cost.memory_mib:.0f} MiB in Prometheus",
            f"one evaluation of the recording rules: {cost.recording_seconds:.2f} CPU-s",
            "one evaluation of these and all alerts:"
            f" {cost.all_seconds:.2f} CPU-s ({low:.2f} to {high:.2f}; bar {BAR})",
            f"one evaluation of the rules once an hour: {cost.hourly_seconds:.2f} CPU-s",
            *(f"  {seconds * 1000:4.0f} ms {name}" for name, seconds in every[:COSTLIEST]),
        )
    )


def _configure(folder: Path, target: str) -> None:
    groups = [
        {
            "name": group.name,
            "rules": [recording(one) for one in group.records],
        }
        for group in recording_rules.GROUPS
    ]
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
    pages = [*(f"/{first}" for first in FIRST_NODES), "/watch", "/kubernetes"]
    scrapes = [
        {
            "job_name": page,
            "metrics_path": page,
            "honor_labels": True,
            "static_configs": [{"targets": [target]}],
        }
        for page in pages
    ]
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "scrape_timeout": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": f"{EVALUATION_SECONDS}s",
        },
        "rule_files": ["rules.yaml"],
        "scrape_configs": scrapes,
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))


@contextmanager
def _prometheus(folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await_answer(process, port, PATIENCE_SECONDS)
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


def _await_rest(pid: int) -> None:
    """Wait until the server has finished the work that earlier scrapes and rules left.

    Raises:
        RuntimeError: it keeps working.
    """
    for _ in range(PATIENCE_SECONDS):
        before = cpu_seconds(pid)
        time.sleep(1)
        if cpu_seconds(pid) - before < AT_REST:
            return
    raise RuntimeError(f"prometheus does not come to rest within {PATIENCE_SECONDS} s")


def _cpu_of(pid: int, port: int, expression: str, now: float) -> float:
    """Return the CPU time that the server takes for an expression."""
    body = urlencode({"query": expression, "time": f"{now:.3f}"}).encode()
    before = cpu_seconds(pid)
    with urlopen(f"http://127.0.0.1:{port}/api/v1/query", body, timeout=120) as answer:
        answer.read()
    return cpu_seconds(pid) - before


def _series(port: int) -> int:
    return int(_api(port, "/api/v1/status/tsdb")["headStats"]["numSeries"])


def _api(port: int, path: str) -> Mapping[str, Any]:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        data: dict[str, Any] = json.load(answer)["data"]
    return data


@contextmanager
def _fleet() -> Iterator[str]:
    """Serve the fleet's pages; counters grow with time."""
    began = time.monotonic()
    pages = {f"/{first}": page_of_nodes(first, NODES_OF_A_PAGE) for first in FIRST_NODES}
    pages |= {"/watch": page_of_watch(), "/kubernetes": page_of_kubernetes()}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = filled(pages[self.path], int(time.monotonic() - began) + 1).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """Print nothing: Prometheus hangs up when it is told to stop scraping."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
