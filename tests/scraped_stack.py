"""A real Prometheus over a real agent of a faulty node, rankscope watch and kube-state-metrics.

The agent simulates eight GPUs of which one is hot and one fell off the bus, reads rings that
living writers fill (rank 2 computes too long), an NCCL log, NCCL Inspector's file and a kernel log
that grow, and a kubelet. Only kube-state-metrics is played, and only by the names in
`stack_sources.KUBERNETES`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
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
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

import kubeconfigs
import workload_objects
from fake_api_server import FakeApiServer, Store
from fake_kubelet import FakeKubelet, devices, pod_resources
from pod_json import agents_pod, pod
from rankscope_agent.contract.canary import NAME
from rankscope_agent.sources.gpus.simulation.nvml import gpu_uuid
from rankscope_agent.sources.gpus.simulation.ports import PREFIX
from rankscope_analyzers.demo.free_ports import free_port
from rdma_files import write
from running_agent import PATIENCE_SECONDS, RunningAgent, agent_environment, running_agent
from stack_sources import NODE, Logs, Pace, Training, kubernetes

CONFIGURATION = """\
version: 1
prices: {currency: EUR, gpu_hours: [{price: 2.4}]}
budgets: [{project: vision, month: 400}]
"""
"""What the watch knows of its cluster: what GPUs cost, and what a project may spend."""

RULES = Path(__file__).parent.parent / "dashboards" / "generated" / "rules" / "alerts.yaml"
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses of two Prometheus: one with two clusters, one without a cluster label."""

    clusters: str
    plain: str
    agent: RunningAgent


QUICK = Pace()


WAITING_POD = ("waiting-2", "waiting", "Pending")
STATES = {
    "Failed": {
        "terminated": {
            "reason": "OOMKilled",
            "exitCode": 137,
            "finishedAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
    },
    "Pending": {"waiting": {"reason": "ImagePullBackOff"}},
}


def api_server() -> FakeApiServer:
    """Run an API server that knows five pods of the node: one trains, two failed, one waits.

    The last is a canary. The second calls itself after a job of another namespace, which nobody
    believes.
    """
    server = FakeApiServer()
    for number, (name, job, phase) in enumerate(
        (
            ("train-0", "job", "Running"),
            ("broken-1", "broken", "Failed"),
            WAITING_POD,
            ("crashed-3", "crashed", "Failed"),
            ("canary-4", NAME, "Running"),
        ),
        start=1,
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
        if phase in STATES:
            made["status"]["containerStatuses"][0]["state"] = STATES[phase]
        server.put(made)
    job_objects(server)
    surroundings(server)
    return server


TORCH = "/apis/kubeflow.org/v1/pytorchjobs"
NODES, QUOTAS = "/api/v1/nodes", "/api/v1/resourcequotas"


def surroundings(server: FakeApiServer) -> None:
    """Have a node that a cloud is about to take back, and a quota of which nothing is left."""
    taint = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
    full = {"requests.nvidia.com/gpu": "8"}
    for path, name, spec, status in (
        (NODES, "elsewhere", {"taints": [taint]}, {}),
        (QUOTAS, "gpus", {"hard": full}, {"hard": full, "used": full}),
    ):
        metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}"}
        server.collections[path] = Store()
        server.collections[path].put({"metadata": metadata, "spec": spec, "status": status})


def job_objects(server: FakeApiServer) -> None:
    """Have one job that runs on a node elsewhere, and one whose pod gets no GPU."""
    of = workload_objects.kind("PyTorchJob")
    server.collections[TORCH] = Store()
    began = time.time() - workload_objects.START - 600
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}
    status = {"conditions": [workload_objects.condition("Running")]}
    no_gpu = workload_objects.condition(
        "PodScheduled", began, "Unschedulable", "3 Insufficient nvidia.com/gpu", status="False"
    )
    waits = {"scheduled": None, "phase": "Pending", "conditions": [no_gpu]}
    starts = {"scheduled": began + 4, "started": began + 34}
    for name, more in (("job", starts), ("free", waits)):
        made = workload_objects.thing(of, spec, status, name, created=began)
        server.collections[TORCH].put(made)
        labels = {"training.kubeflow.org/job-name": name}
        server.put(
            workload_objects.pod(f"{name}-0", labels, node="elsewhere", created=began, **more)
        )


def short_job(server: FakeApiServer, number: int) -> None:
    """Have a job that has just ended: every third one failed."""
    of = workload_objects.kind("PyTorchJob")
    now = time.time() - workload_objects.START
    end = "Succeeded" if number % 3 else "Failed"
    status = {"conditions": [workload_objects.condition(end, now)]}
    made = workload_objects.thing(of, {}, status, f"short-{number}", created=now - 60)
    server.collections[TORCH].put(made)


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
    (folder / "rankscope.yaml").write_text(CONFIGURATION)
    command += ["--cluster-jobs", "--config", str(folder / "rankscope.yaml")]
    found_by = {"KUBECONFIG": str(kubeconfigs.written(api.url, folder))}
    ends = itertools.count()
    with (
        _process(command, folder / "watch.log", found_by),
        _repeating(lambda: short_job(api, next(ends)), 1.0),
    ):
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
    rarely = {"GOGC": "400"}  # it collects garbage: it has little, and lives for a minute
    with _process(command, folder / "prometheus.log", rarely):
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
        held = devices("nvidia.com/gpu", *(gpu_uuid(NODE, index) for index in range(4)))
        kubelet = FakeKubelet(socket, pod_resources("team", "train-0", held))
        stack.callback(kubelet.close)
        flags = ("--simulate=h100x8:thermal@2+xid79@5", f"--path.kmsg={logs.kernel}")
        api = api_server()
        stack.callback(api.close)
        pods = (f"--kubernetes.api={api.url}", "--kubernetes.start-jitter=0")
        owners = "--kubernetes.job-labels=project=team.example.org/project"
        inspector = f"--nccl.inspector-dirs={folder / 'inspector'}/nccl-inspector-*"
        stored = (f"--path.debugfs={logs.debugfs}", "--training.checkpoint-objective=3600")
        agent = stack.enter_context(
            running_agent(folder, *flags, *pods, *stored, owners, inspector)
        )
        add_interface(agent)
        trained = _repeating(lambda: (training.catch_up(), logs.train(), logs.read()), 0.5)
        stack.enter_context(trained)
        stack.enter_context(_repeating(logs.fail, pace.growth_seconds))
        others = [
            stack.enter_context(_watch(agent, folder, api)),
            stack.enter_context(kubernetes(pace.restart_seconds)),
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
