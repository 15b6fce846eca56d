"""What one evaluation of all rules costs a real Prometheus that has a fleet of 16,384 ranks.

The fleet is made up: 2,048 nodes of 8 ranks in jobs of 512, with the series that rules read for
every rank, GPU, port and node. Prometheus scrapes it and evaluates the recording rules for a while.
Then both stop, and each expression is asked for by hand; the server's CPU time for all of them is
the cost of one evaluation, but for writing its results.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.processes import cpu_seconds, free_port, memory_mib

from rankscope_agent.metrics import agent, gpu, pods, rdma, training
from rankscope_agent.model import Metric
from rankscope_dashboards import alerts, recording_rules

NODES, RANKS_OF_A_NODE, NODES_OF_A_JOB = 2048, 8, 64
NODES_OF_A_PAGE = 64
SCRAPE_SECONDS = 15
EVALUATION_SECONDS = 15
WARM_UP_SECONDS = 75
"""Five scrapes, so that rates have what to work on."""

ROUNDS = 5
"""Evaluations of each expression, of which the median counts."""

BUCKETS = ("0.1", "0.25", "0.5", "1.0", "2.0", "4.0", "8.0", "16.0", "32.0", "64.0", "+Inf")
REASONS = ("hw_power_brake", "hw_slowdown", "hw_thermal_slowdown", "idle", "sw_power_cap")


@dataclass(frozen=True, slots=True)
class RuleCost:
    """CPU seconds per evaluation, and the server's series and memory."""

    recording_seconds: float
    all_seconds: float
    series: int
    memory_mib: float


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
            time.sleep(SCRAPE_SECONDS)
            series = _series(port)
            records = [one.expression for group in recording_rules.GROUPS for one in group.records]
            recording = sum(_cpu_of(pid, port, one, now) for one in records)
            alerting = sum(_cpu_of(pid, port, one.expression, now) for one in alerts.ALERTS)
            memory = memory_mib(pid, "VmRSS")
    return RuleCost(recording, recording + alerting, series, memory)


def report(cost: RuleCost) -> str:
    """Return the figures as lines."""
    return (
        f"{NODES * RANKS_OF_A_NODE} ranks, {cost.series} series,"
        f" {cost.memory_mib:.0f} MiB in Prometheus\n"
        f"one evaluation of the recording rules: {cost.recording_seconds:.2f} CPU-s (bar 1.2)\n"
        f"one evaluation of recording rules and all alerts: {cost.all_seconds:.2f} CPU-s"
    )


def _configure(folder: Path, target: str) -> None:
    groups = [
        {
            "name": group.name,
            "rules": [{"record": one.name, "expr": one.expression} for one in group.records],
        }
        for group in recording_rules.GROUPS
    ]
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
    pages = [f"/{first}" for first in range(0, NODES, NODES_OF_A_PAGE)]
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
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


def _cpu_of(pid: int, port: int, expression: str, now: float) -> float:
    """Return the CPU time that the server takes for an expression, the median of some rounds."""
    body = urlencode({"query": expression, "time": f"{now:.3f}"}).encode()
    spent = []
    for _ in range(ROUNDS):
        before = cpu_seconds(pid)
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query", body, timeout=120) as answer:
            answer.read()
        spent.append(cpu_seconds(pid) - before)
    return statistics.median(spent)


def _series(port: int) -> int:
    return int(_api(port, "/api/v1/status/tsdb")["headStats"]["numSeries"])


def _api(port: int, path: str) -> dict[str, list[dict[str, object]]]:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)["data"]


@contextmanager
def _fleet() -> Iterator[str]:
    """Serve the fleet's pages; counters grow with time."""
    began = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            first = int(self.path.strip("/"))
            steps = int(time.monotonic() - began) + 1
            body = "".join(
                line
                for node in range(first, first + NODES_OF_A_PAGE)
                for line in _page(node, steps)
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _line(metric: Metric, labels: str, value: float, part: str = "") -> str:
    return f"{metric.name}{part}{{{labels}}} {value}\n"


def _page(node: int, steps: int) -> Iterator[str]:
    """Yield the series of one node after some steps of a second each."""
    on, job = f'node="n{node}"', f'job_id="team/job-{node // NODES_OF_A_JOB}"'
    yield _line(agent.BUILD_INFO, on, 1)
    yield _line(pods.JOB_INFO, f'{on},{job},class="production",owner="o",team="t",project="p"', 1)
    yield _line(pods.JOB_PODS, f'{on},{job},phase="Running"', 1)
    for collector in ("nvml", "rdma", "training", "host", "kernel_log", "nccl_log"):
        yield _line(agent.COLLECTOR_SUCCESS, f'{on},collector="{collector}"', 1)
    for metric in (training.STEP_LATENCY, training.SYNC_TIME):
        for i, bound in enumerate(BUCKETS):
            count = steps * RANKS_OF_A_NODE * (i >= 3)
            yield _line(metric, f'{on},{job},le="{bound}"', count, "_bucket")
        yield _line(metric, f"{on},{job}", steps * RANKS_OF_A_NODE, "_count")
        yield _line(metric, f"{on},{job}", steps * RANKS_OF_A_NODE * 0.9, "_sum")
    for place in range(RANKS_OF_A_NODE):
        yield from _rank(node, place, steps, on, job)
        yield from _gpu(node, place, steps, on, job)


def _rank(node: int, place: int, steps: int, on: str, job: str) -> Iterator[str]:
    number = node % NODES_OF_A_JOB * RANKS_OF_A_NODE + place
    rank = f'{on},{job},rank="{number}"'
    more = f'local_rank="{place}",world_size="512",uuid="GPU-{node}-{place}",pod_uid="u-{node}"'
    pod = f'pod_namespace="team",pod_name="p-{node}",pp_stage="{number * 4 // 512}"'
    yield _line(training.RANK_INFO, f"{rank},{more},{pod}", 1)
    yield _line(training.RANK_ALIVE, rank, 1)
    yield _line(training.STEPS, rank, steps)
    yield _line(training.SAMPLES, rank, steps * 32)
    values = (1.0, 0.01, 0.7, 0.29)
    metrics = (
        training.LAST_STEP_SECONDS,
        training.LAST_DATA_SECONDS,
        training.LAST_COMPUTE_SECONDS,
        training.LAST_SYNC_SECONDS,
    )
    for metric, value in zip(metrics, values, strict=True):
        yield _line(metric, rank, value + 0.001 * ((number + steps) % 7))


def _gpu(node: int, place: int, steps: int, on: str, job: str) -> Iterator[str]:
    uuid = f'gpu="{place}",uuid="GPU-{node}-{place}"'
    device = f'{on},{uuid},pci="0000:{place}b:00"'
    yield _line(pods.GPU_ALLOCATION_INFO, f'{on},{uuid},{job},pod_name="p-{node}"', 1)
    yield _line(gpu.GPU_UTILIZATION, device, 0.95)
    for metric in (
        gpu.GPU_LOST,
        gpu.GPU_UNRESPONSIVE,
        gpu.GPU_REMAP_PENDING,
        gpu.GPU_REMAP_FAILURE,
    ):
        yield _line(metric, device, 0)
    for reason in REASONS:
        yield _line(gpu.GPU_CLOCK_EVENT, f'{device},reason="{reason}"', 0)
    port = f'{on},device="mlx5_{place}",port="1"'
    yield _line(rdma.PORT_STATE, port, 4)
    yield _line(rdma.PORT_RATE, port, 5e10)
    yield _line(rdma.TRANSMIT_BYTES, port, steps * 2e10)
    yield _line(rdma.LINK_FLAPS, port, 0)
