"""A real Prometheus over a real agent of a faulty node, rankscope watch and kube-state-metrics.

The agent simulates eight GPUs of which one is hot and one fell off the bus, reads rings that
living writers fill (rank 2 computes too long), an NCCL log, NCCL Inspector's file and a kernel log
that grow, and a kubelet. Only kube-state-metrics is played, and only by the names in KUBERNETES.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from fake_kubelet import FakeKubelet, devices, pod_resources
from nccl_job_text import start
from rankscope_agent.kernel_log.kmsg import READ_BYTES
from ring_writer import RingWriter
from running_agent import PATIENCE_SECONDS, RunningAgent, agent_environment, running_agent
from servers import free_port

RULES = Path(__file__).parent.parent / "dashboards" / "generated" / "rules" / "alerts.yaml"
ROOT = Path(__file__).parent.parent
NODE = "test-node"
JOB = "team/job"
STEP_NS = 142_000_000

KUBERNETES = ("kube_pod_container_status_restarts_total", "kube_node_status_condition")
"""The only series that are not ours, by the names that kube-state-metrics documents."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses of two Prometheus: one with two clusters, one without a cluster label."""

    clusters: str
    plain: str
    agent: RunningAgent


class _Kubernetes(BaseHTTPRequestHandler):
    restarts = 0

    def do_GET(self) -> None:
        type(self).restarts += 1
        restarts, condition = KUBERNETES
        lines = (
            f'{restarts}{{namespace="team",pod="train-0",container="main"}} {self.restarts}',
            f'{condition}{{node="{NODE}",condition="Ready",status="true"}} 1',
            f'{condition}{{node="gpu-09",condition="Ready",status="true"}} 0',
        )
        body = "".join(f"{line}\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _kubernetes() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Kubernetes)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Training:
    """Four ranks that train, rank 2 of them slowly from step 60 on; and a job that lost a rank."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        begin = time.time_ns() - 120 * STEP_NS
        self.begin = begin
        self.ranks = [self._ring(folder, rank, JOB, 4) for rank in range(4)]
        self.other = [self._ring(folder, rank, "team/broken", 2) for rank in range(2)]
        for number in range(120):
            self._step(number)
        self.other.pop().end()
        self.number = 120

    def _ring(self, folder: Path, rank: int, job: str, size: int) -> RingWriter:
        name = f"{rank + (100 if job != JOB else 1)}-1.ring"
        place = {"rank": rank, "local_rank": rank, "world_size": size, "local_world_size": size}
        made = {"capacity": 4096, "created_unix_ns": self.begin}
        return RingWriter(folder, name, job_id=job, node=NODE, **place, **made)

    def _step(self, number: int) -> None:
        for rank, writer in enumerate(self.ranks):
            slow = 40_000_000 if rank == 2 and number >= 60 else 0
            writer.step(
                start_unix_ns=self.begin + number * STEP_NS,
                step_ns=STEP_NS,
                data_ns=10_000_000,
                compute_ns=60_000_000 + slow,
                sync_ns=70_000_000 - slow,
            )
        for writer in self.other:
            writer.step(start_unix_ns=self.begin + number * STEP_NS, step_ns=STEP_NS)

    def catch_up(self) -> None:
        """Write the steps that ended since."""
        while self.begin + (self.number + 1) * STEP_NS < time.time_ns():
            self._step(self.number)
            self.number += 1

    def end(self) -> None:
        """Let go of the rings."""
        for writer in [*self.ranks, *self.other]:
            writer.end()


class Logs:
    """Files that grow: NCCL's log of a pod, Inspector's file, the kernel's log."""

    def __init__(self, folder: Path) -> None:
        self.nccl = folder / "logs" / "team_train-0_uid-1" / "main" / "0.log"
        self.inspector = folder / "inspector" / "nccl-inspector-7" / "test-node-pid4711.log"
        self.kernel = folder / "kmsg"
        for path in (self.nccl, self.inspector):
            path.parent.mkdir(parents=True)
        self.number = 0
        self._say(start(3, 16, "NET/Socket/0", network="Socket"))
        self.records = 0
        self._record("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05")

    def _say(self, text: str) -> None:
        with self.nccl.open("a") as log:
            for line in text.splitlines():
                log.write(f"2026-11-21T02:14:00.123456789Z stdout F {line}\n")

    def _record(self, text: str) -> None:
        # Each read of the device gives one record, whatever its length.
        self.records += 1
        with self.kernel.open("ab") as log:
            line = f"4,{self.records},{self.records}000000,-;{text}\n"
            log.write(line.encode().ljust(READ_BYTES, b"\n"))

    def grow(self) -> None:
        """Add a warning, a collective and an error of a GPU."""
        self.number += 1
        self._say("gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'")
        header = {"id": "0x9e", "comm_name": "x", "rank": 3, "n_ranks": 16, "nnodes": 2}
        metadata = {"inspector_output_format_version": "v4.2", "git_rev": "", "pid": 4711}
        metadata |= {"rec_mechanism": "nccl_profiler_interface", "hostname": NODE}
        metadata["dump_timestamp_us"] = time.time_ns() // 1000
        done = {"coll": "AllReduce", "coll_algo": "RING", "coll_proto": "SIMPLE"}
        done |= {"coll_sn": self.number, "coll_msg_size_bytes": 1 << 24, "coll_exec_time_us": 619}
        done |= {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 27.0}
        done |= {"coll_busbw_gbs": 51.0}
        with self.inspector.open("a") as log:
            line = {"header": header, "metadata": metadata, "coll_perf": done}
            log.write(json.dumps(line) + "\n")
        self._record("NVRM: Xid (PCI:0000:3b:00): 48, pid=71, name=trainer, DBE")
        self._record("INFO: task python:4711 blocked for more than 120 seconds.")


@contextlib.contextmanager
def _growing(step: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.5):
            step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _process(command: list[str], log: Path) -> Iterator[None]:
    environment = dict(agent_environment())
    environment["PYTHONPATH"] += f":{ROOT / 'analyzers'}"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def _watch(agent: RunningAgent, folder: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    run = "import sys; from rankscope_analyzers.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", run, "watch", "--agent", agent.url]
    command += ["--interval", "1s", "--web.listen-address", address]
    with _process(command, folder / "watch.log"):
        yield address


def quick_rules() -> dict[str, Any]:
    """Return the generated alerts, evaluated each second and without waiting."""
    document = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule.pop("for", None)
            rule.pop("keep_firing_for", None)
    return document


@contextlib.contextmanager
def prometheus(
    program: str, folder: Path, clusters: list[str], agent: str, others: list[str]
) -> Iterator[str]:
    """Run a Prometheus that scrapes once a second; each cluster is the same agent once more."""
    folder.mkdir()
    (folder / "rules.yml").write_text(json.dumps(quick_rules()))
    static = []
    for cluster in clusters:
        labels = {"cluster": cluster} if cluster else {}
        static.append({"targets": [agent], "labels": {**labels, "node": NODE}})
        static.append({"targets": others, "labels": labels})
    config = {
        "global": {
            "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"
        },
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [
            {"job_name": "all", "honor_labels": True, "static_configs": static},
        ],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with _process(command, folder / "prometheus.log"):
        _await_ready(address, folder / "prometheus.log")
        yield address


def _await_ready(address: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready"):
            return
        time.sleep(0.1)
    raise AssertionError(f"Prometheus is not ready: {log.read_text()[-2000:]}")


@contextlib.contextmanager
def scraped_stack(program: str, folder: Path) -> Iterator[Stack]:
    """Run all of it until the block ends."""
    with contextlib.ExitStack() as stack:
        training = Training(folder / "rings")
        stack.callback(training.end)
        logs = Logs(folder)
        (folder / "kubelet" / "pod-resources").mkdir(parents=True)
        socket = folder / "kubelet" / "pod-resources" / "kubelet.sock"
        held = devices("nvidia.com/gpu", "GPU-17553dc6-983d-51fd-8e3c-eeb2d9dcbefa")
        kubelet = FakeKubelet(socket, pod_resources("team", "train-0", held))
        stack.callback(kubelet.close)
        flags = ("--simulate=h100x8:thermal@2+xid79@5", f"--path.kmsg={logs.kernel}")
        inspector = f"--nccl.inspector-dirs={folder / 'inspector'}/nccl-inspector-*"
        agent = stack.enter_context(running_agent(folder, *flags, inspector))
        stack.enter_context(_growing(lambda: (training.catch_up(), logs.grow())))
        others = [stack.enter_context(_watch(agent, folder)), stack.enter_context(_kubernetes())]
        target = agent.url.removeprefix("http://")
        yield Stack(
            stack.enter_context(
                prometheus(program, folder / "two", ["east", "west"], target, others)
            ),
            stack.enter_context(prometheus(program, folder / "plain", [""], target, others)),
            agent,
        )


def ask(address: str, path: str, **parameters: str) -> Any:
    """Return what Prometheus answers.

    Raises:
        AssertionError: it refuses.
    """
    url = f"http://{address}/api/v1/{path}"
    data = urllib.parse.urlencode(parameters).encode()
    post = None if path.startswith("label/") else data
    url += "" if post else f"?{data.decode()}"
    try:
        with urllib.request.urlopen(url, post, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{parameters}: {error.read().decode()}") from None


def filled(expression: str, variables: dict[str, str], window: str = "1h") -> str:
    """Return a query with Grafana's variables filled in."""
    values = {"__rate_interval": "8s", "__range": window, "__interval": "1s", **variables}
    return re.sub(r"\$(\w+)", lambda match: values.get(match[1], match[0]), expression)
