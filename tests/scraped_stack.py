"""A real Prometheus over a real agent of a faulty node, rankscope watch and kube-state-metrics.

The agent simulates eight GPUs of which one is hot and one fell off the bus, reads rings that
living writers fill (rank 2 computes too long), an NCCL log, NCCL Inspector's file and a kernel log
that grow, and a kubelet. Only kube-state-metrics is played, and only by the names in KUBERNETES.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

import kubeconfigs
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet, devices, pod_resources
from nccl_job_text import start
from pod_json import agents_pod, pod, uid
from rankscope_agent.contract.model import FLAG_CPU_WAIT
from rankscope_agent.sources.gpus.simulation.ports import PREFIX
from rankscope_agent.sources.kernel_log.kmsg import READ_BYTES
from rdma_files import write
from ring_writer import ExtensionWriter, RingWriter
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
class Pace:
    """How fast things happen: at once for tests, as in life for whoever looks on.

    Args:
        slow_from: step from which rank 2 computes longer, counting 120 steps before the start.
        uneven: whether steps differ in length, each fiftieth being a long one.
        growth_seconds: how often logs get new lines of what goes wrong.
        restart_seconds: how often a container restarts.
        scrape_seconds: how often Prometheus scrapes.
    """

    slow_from: int = 60
    uneven: bool = False
    growth_seconds: float = 0.5
    restart_seconds: float = 1.0
    scrape_seconds: int = 1


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses of two Prometheus: one with two clusters, one without a cluster label."""

    clusters: str
    plain: str
    agent: RunningAgent


QUICK = Pace()


class _Kubernetes(BaseHTTPRequestHandler):
    begin = 0.0
    restart_seconds = 1.0

    def do_GET(self) -> None:
        restarts, condition = KUBERNETES
        number = int((time.monotonic() - self.begin) / self.restart_seconds)
        lines = (
            f'{restarts}{{namespace="team",pod="train-0",container="main"}} {number}',
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
def _kubernetes(restart_seconds: float) -> Iterator[str]:
    state = {"begin": time.monotonic(), "restart_seconds": restart_seconds}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Kubernetes", (_Kubernetes,), state))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Training:
    """Four ranks that train, rank 2 of them slowly after a while; and a job that lost a rank.

    Args:
        kubelet: its directory; the first job is of the first pod, the other of the second.
    """

    def __init__(self, kubelet: Path, pace: Pace) -> None:
        self.pace = pace
        self.next_ns = self.begin = time.time_ns() - 120 * STEP_NS
        self.number = 0
        folders = [_volume(kubelet, number) for number in (1, 2)]
        self.extensions = [self._extension(folders[0], rank) for rank in range(4)]
        self.ranks = [self._ring(folders[0], rank, JOB, 4) for rank in range(4)]
        self.other = [self._ring(folders[1], rank, "team/broken", 2) for rank in range(2)]
        self.catch_up()
        self.other.pop().end()

    def _ring(self, folder: Path, rank: int, job: str, size: int) -> RingWriter:
        name = f"{rank + (100 if job != JOB else 1)}-1.ring"
        place = {"rank": rank, "local_rank": rank, "world_size": size, "local_world_size": size}
        made = {"capacity": 4096, "created_unix_ns": self.begin}
        return RingWriter(folder, name, job_id=job, node=NODE, **place, **made)

    def _extension(self, folder: Path, rank: int) -> ExtensionWriter:
        made = {"capacity": 4096, "created_unix_ns": self.begin}
        return ExtensionWriter(folder, f"{rank + 1}-1.ext", **made)

    def _length_ns(self) -> int:
        if not self.pace.uneven:
            return STEP_NS
        wave = 6 * math.sin(self.number / 9) + 4 * math.sin(self.number * 2.4)
        long = 150 if self.number % 50 == 0 else 0
        slow = 40 if self.number >= self.pace.slow_from else 0
        return int((102 + wave + long + slow) * 1e6)

    def _step(self, length_ns: int) -> None:
        at = {"start_unix_ns": self.next_ns, "step_ns": length_ns}
        data_ns, sync_ns = 10_000_000, 30_000_000
        for rank, writer in enumerate(self.ranks):
            waits = self.number >= self.pace.slow_from and rank != 2
            sync = sync_ns + (40_000_000 if waits else 0)
            compute_ns = length_ns - data_ns - sync
            flags = 2 | FLAG_CPU_WAIT
            self.extensions[rank].write(writer.seq + 1, other_ns=min(10_000_000, compute_ns))
            writer.step(**at, data_ns=data_ns, compute_ns=compute_ns, sync_ns=sync, flags=flags)
        for writer in self.other:
            writer.step(**at)

    def catch_up(self) -> None:
        """Write the steps that ended since."""
        while self.next_ns + (length_ns := self._length_ns()) < time.time_ns():
            self._step(length_ns)
            self.next_ns += length_ns
            self.number += 1

    def end(self) -> None:
        """Let go of the rings."""
        for writer in [*self.ranks, *self.other]:
            writer.end()


def _volume(kubelet: Path, number: int) -> Path:
    """Make the volume of a pod in which its probes write."""
    made = kubelet / "pods" / uid(number) / "volumes" / "kubernetes.io~empty-dir" / "rankscope"
    made.mkdir(parents=True)
    return made


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
        self.records = self.failures = 0
        self._record("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05")

    def _say(self, text: str) -> None:
        with self.nccl.open("a") as log:
            for line in text.splitlines():
                log.write(f"2026-11-21T02:14:00.123456789Z stdout F {line}\n")

    def _record(self, text: str) -> None:
        # Each read of the device gives one record, whatever its length.
        self.records += 1
        with self.kernel.open("ab") as log:
            line = f"4,{self.records},{time.monotonic_ns() // 1000},-;{text}\n"
            log.write(line.encode().ljust(READ_BYTES, b"\n"))

    def _iteration(self) -> None:
        # As Megatron-LM prints it: a loss that falls and levels off.
        number, loss = self.number * 10, 2 + 8 / math.sqrt(self.number)
        self._say(
            f" iteration {number:8d}/  500000 | consumed samples: {number * 256:12d} |"
            " elapsed time per iteration (ms): 142.0 | throughput per GPU (TFLOP/s/GPU): 401.5 |"
            f" learning rate: 3.000000E-05 | global batch size: 256 | lm loss: {loss:.6E} |"
            " loss scale: 1.0 | grad norm: 0.812 | number of skipped iterations: 0 |"
            " number of nan iterations: 0 |"
        )

    def train(self) -> None:
        """Add a line about steps and a collective."""
        self.number += 1
        self._iteration()
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

    def fail(self) -> None:
        """Add a warning and an error of the kernel; the first time an Xid, too."""
        self._say("gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'")
        if self.failures == 0:
            self._record("NVRM: Xid (PCI:0000:3b:00): 48, pid=71, name=trainer, DBE")
            group = f"/kubepods/burstable/pod{uid(1)}"
            limit = f"oom_memcg={group},task_memcg={group}/main,task=pt_data_worker,pid=72,uid=0"
            self._record(f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),{limit}")
            self._record("Memory cgroup out of memory: Killed process 72 (pt_data_worker)")
        self.failures += 1
        self._record("INFO: task python:4711 blocked for more than 120 seconds.")


def api_server() -> FakeApiServer:
    """Run an API server that knows two pods of the node: one that trains and one that failed.

    The latter calls itself after a job of another namespace, which nobody believes.
    """
    server = FakeApiServer()
    for number, (name, job, phase) in enumerate(
        (("train-0", "job", "Running"), ("broken-1", "broken", "Failed")), start=1
    ):
        kubeflow = {"job-name": job, "operator-name": "pytorchjob-controller"}
        kubeflow |= {"replica-type": "worker", "replica-index": "0"}
        labels = {f"training.kubeflow.org/{name}": value for name, value in kubeflow.items()}
        made = pod(
            name,
            "team",
            number=number,
            labels=labels | {"team.example.org/project": "vision"},
            owner=("kubeflow.org/v1", "PyTorchJob", job),
            limits={"nvidia.com/gpu": "1"},
            env={"RANKSCOPE_JOB_ID": "other/job"} if job == "broken" else {},
            phase=phase,
        )
        made["spec"]["nodeName"] = NODE
        server.put(made)
    return server


def add_interface(agent: RunningAgent) -> None:
    """Give the simulated node, which has RDMA ports only, a network interface that drops frames."""
    held = []
    for descriptor in Path(f"/proc/{agent.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed in the meantime
            held.append(descriptor.readlink())
    (sysfs,) = [path.parent for path in held if path.parent.name.startswith(PREFIX)]
    place, device = sysfs / "class" / "net" / "eth1", sysfs / "devices" / "0000:05:00.0"
    files = {"operstate": "up", "mtu": 9000, "speed": 100_000, "carrier_up_count": 2}
    for side in ("rx", "tx"):
        files |= {f"statistics/{side}_{what}": 7 for what in ("bytes", "errors", "dropped")}
    for name, value in files.items():
        write(place / name, value)
    write(device / "numa_node", 0)
    (place / "device").symlink_to(device)


@contextlib.contextmanager
def _repeating(step: Callable[[], object], seconds: float) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(seconds):
            step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _process(
    command: list[str], log: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    environment = dict(agent_environment(**variables))
    environment["PYTHONPATH"] += f":{ROOT / 'analyzers'}"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def _watch(agent: RunningAgent, folder: Path, api: FakeApiServer) -> Iterator[str]:
    """Watch the agents that the API server names, as the one of several that holds a lease."""
    address = f"127.0.0.1:{free_port()}"
    api.put(agents_pod(agent.url, "rankscope"))
    run = "import sys; from rankscope_analyzers.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", run, "watch", "--cluster", "--namespace", "rankscope"]
    command += ["--lease", "rankscope-watch", "--interval", "1s", "--web.listen-address", address]
    found_by = {"KUBECONFIG": str(kubeconfigs.written(api.url, folder))}
    with _process(command, folder / "watch.log", found_by):
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
    program: str,
    folder: Path,
    clusters: list[str],
    agent: str,
    others: list[str],
    scrape_seconds: int = 1,
) -> Iterator[str]:
    """Run a Prometheus; each cluster is the same agent once more."""
    folder.mkdir()
    (folder / "rules.yml").write_text(json.dumps(quick_rules()))
    static = []
    for cluster in clusters:
        labels = {"cluster": cluster} if cluster else {}
        static.append({"targets": [agent], "labels": {**labels, "node": NODE}})
        static.append({"targets": others, "labels": labels})
    config = {
        "global": {
            "scrape_interval": f"{scrape_seconds}s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
        },
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [{"job_name": "all", "honor_labels": True, "static_configs": static}],
    }
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
def scraped_stack(program: str, folder: Path, pace: Pace = QUICK) -> Iterator[Stack]:
    """Run all of it until the block ends."""
    with contextlib.ExitStack() as stack:
        training = Training(folder / "kubelet", pace)
        stack.callback(training.end)
        logs = Logs(folder)
        (folder / "kubelet" / "pod-resources").mkdir(parents=True)
        socket = folder / "kubelet" / "pod-resources" / "kubelet.sock"
        held = devices("nvidia.com/gpu", "GPU-17553dc6-983d-51fd-8e3c-eeb2d9dcbefa")
        kubelet = FakeKubelet(socket, pod_resources("team", "train-0", held))
        stack.callback(kubelet.close)
        flags = ("--simulate=h100x8:thermal@2+xid79@5", f"--path.kmsg={logs.kernel}")
        api = api_server()
        stack.callback(api.close)
        kubernetes = (f"--kubernetes.api={api.url}", "--kubernetes.start-jitter=0")
        owners = "--kubernetes.job-labels=project=team.example.org/project"
        inspector = f"--nccl.inspector-dirs={folder / 'inspector'}/nccl-inspector-*"
        agent = stack.enter_context(running_agent(folder, *flags, *kubernetes, owners, inspector))
        add_interface(agent)
        trained = _repeating(lambda: (training.catch_up(), logs.train()), 0.5)
        stack.enter_context(trained)
        stack.enter_context(_repeating(logs.fail, pace.growth_seconds))
        others = [
            stack.enter_context(_watch(agent, folder, api)),
            stack.enter_context(_kubernetes(pace.restart_seconds)),
        ]
        target = agent.url.removeprefix("http://")

        def server(name: str, clusters: list[str]) -> str:
            scraper = prometheus(
                program, folder / name, clusters, target, others, pace.scrape_seconds
            )
            return stack.enter_context(scraper)

        yield Stack(server("two", ["east", "west"]), server("plain", [""]), agent)


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
