"""What a pod says of itself counts in its own namespace: by a real agent, to the verdict."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_api_server import FakeApiServer
from pod_json import pod, uid
from rankscope_analyzers import cli
from ring_writer import NS, RingWriter
from running_agent import PATIENCE_SECONDS, RunningAgent, running_agent

STEPS, STEP_NS = 200, 100_000_000
OWNED = ("kubeflow.org/v1", "PyTorchJob", "llm")
CONTAINER = "c" * 64


class Node:
    """A node of one machine: its kubelet's folders, its processes, an API server, an agent."""

    def __init__(self, path: Path, api: FakeApiServer) -> None:
        self.path, self.api = path, api
        self.now_ns = time.time_ns()
        (path / "proc").mkdir()

    def ring(self, number: int, rank: int, compute_ns: int, **header: object) -> RingWriter:
        """Write what a probe in a pod would have written in the last twenty seconds."""
        parts = f"kubelet/pods/{uid(number)}/volumes/kubernetes.io~empty-dir/rankscope"
        volume = self.path / parts
        volume.mkdir(parents=True, exist_ok=True)
        begun_ns = self.now_ns - STEPS * STEP_NS
        fields = {"created_unix_ns": begun_ns, "capacity": 256, "pod_uid": uid(number), **header}
        ring = RingWriter(volume, f"{rank}-{rank}.ring", rank=rank, local_rank=rank, **fields)
        for step in range(STEPS):
            ring.step(
                start_unix_ns=begun_ns + step * STEP_NS,
                step_ns=STEP_NS,
                data_ns=1_000_000,
                compute_ns=compute_ns,
                sync_ns=STEP_NS - compute_ns - 1_000_000,
            )
        return ring

    def process(self, pid: int, number: int, **environ: str) -> None:
        folder = self.path / "proc" / str(pid)
        folder.mkdir()
        text = "\0".join(f"{key}={value}" for key, value in environ.items())
        (folder / "environ").write_text(text)
        (folder / "cgroup").write_text(f"0::/kubepods/pod{uid(number)}/{CONTAINER}")

    @contextlib.contextmanager
    def agent(self, *more: str) -> Iterator[RunningAgent]:
        flags = (
            "--node-name=n1",
            f"--kubernetes.api={self.api.url}",
            "--kubernetes.start-jitter=0",
            f"--path.procfs={self.path}/proc",
            f"--path.sysfs={self.path}/sys",
            "--collector.interval=0.2",
            "--no-collector.kernel_log",  # of this machine, on which anything may go on
        )
        with running_agent(self.path, *flags, *more) as agent:
            yield agent


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    made = FakeApiServer()
    yield made
    made.close()


@pytest.fixture
def node(tmp_path, api) -> Node:
    return Node(tmp_path, api)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)


def await_line(agent: RunningAgent, pattern: str) -> str:
    """Wait for a line on the page and return the page."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        page = agent.get("/metrics")
        if re.search(pattern, page, re.MULTILINE):
            return page
        time.sleep(0.1)
    raise AssertionError(f"nothing like {pattern} on the page:\n{page}")


def values(page: str, name: str, job_id: str) -> dict[str, float]:
    """Return a metric of a job's ranks, by rank."""
    pattern = rf'^{name}\{{job_id="{re.escape(job_id)}",rank="(\d+)"\}} (\S+)$'
    return {rank: float(value) for rank, value in re.findall(pattern, page, re.MULTILINE)}


def healthy_job(node: Node) -> list[RingWriter]:
    """Put a job of four ranks on the node that waits for nobody."""
    node.api.put(pod("llm-0", "ml", number=1, owner=OWNED, container_id=CONTAINER))
    return [node.ring(1, rank, 60_000_000, job_id="local/1234abcd") for rank in range(4)]


def diagnosed(capsys, agent: RunningAgent) -> dict[str, dict]:
    assert cli.main(["diagnose", "--agent", agent.url, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


CLAIMED = {"RANKSCOPE_JOB_ID": "ml/llm"}


@pytest.mark.parametrize(
    "specification",
    [
        {"env": CLAIMED},
        {"env": CLAIMED, "owner": ("apps/v1", "DaemonSet", "spy")},
        {"labels": {"training.kubeflow.org/job-name": "llm"}, "env": CLAIMED},
        {"annotations": {"jobset.sigs.k8s.io/jobset-name": "../ml/llm"}},
        {"owner": ("kubeflow.org/v1", "PyTorchJob", "../ml/llm")},
        {"owner": ("apps/v1", "DaemonSet", "spy")},
    ],
)
def test_a_pod_speaks_for_no_job_of_another_namespace(node, capsys, specification):
    """It claims a fifth rank that is slow, and to be the newer process of ranks 0 and 1."""
    rings = healthy_job(node)
    node.api.put(pod("spy-0", "mallory", number=2, **specification))
    later_ns = node.now_ns - NS
    more = {"job_id": "ml/llm", "world_size": 5, "created_unix_ns": later_ns}
    rings += [node.ring(2, rank, 90_000_000, **more) for rank in (0, 4)]
    node.ring(2, 1, 90_000_000, **more).end()
    node.process(77, 2, RANK="3", WORLD_SIZE="4", LOCAL_RANK="3", **CLAIMED)
    with node.agent() as agent:
        page = await_line(agent, r'^rankscope_steps_total\{job_id="ml/llm",rank="3"\} 200')
        said = diagnosed(capsys, agent)
        ranks = json.loads(agent.get("/api/v1/ranks"))["ranks"]
        steps = json.loads(agent.get("/api/v1/steps?job=ml/llm"))["rows"]
        placed = json.loads(agent.get("/api/v1/pods"))["ranks"]
    assert values(page, "rankscope_steps_total", "ml/llm") == dict.fromkeys("0123", STEPS)
    assert values(page, "rankscope_rank_alive", "ml/llm") == dict.fromkeys("0123", 1)
    mine = [rank for rank in ranks if rank["job_id"] == "ml/llm"]
    assert [(rank["rank"], rank["pod_uid"], rank["alive"]) for rank in mine] == [
        (rank, uid(1), True) for rank in range(4)
    ]
    assert len(steps) == 4 * STEPS
    assert {rank["job_id"] for rank in placed} <= {rank["job_id"] for rank in ranks} | {
        "mallory/spy-0"
    }
    foreign = [line for line in page.splitlines() if uid(2) in line or "mallory" in line]
    assert not any('job_id="ml/' in line for line in foreign)
    assert said["ml/llm"]["verdict"]["class"] is None
    assert said["ml/llm"]["incidents"] == []
    for ring in rings:
        ring.end()


def test_no_quote_line_or_escape_of_a_pod_reaches_metrics_or_the_log(node):
    evil = 'llm"} 1\nrankscope_up{x="\x1b[31m'
    long = "x" * 3000
    node.api.put(pod("env-0", "mallory", number=2, env={"RANKSCOPE_JOB_ID": evil}, owner=OWNED))
    node.api.put(pod("own-0", "mallory", number=3, owner=("x.org/v1", f"K{evil}", evil)))
    annotations = {"jobset.sigs.k8s.io/jobset-name": evil, "volcano.sh/queue-name": long}
    held = {"nvidia.com/gpu": "1"}
    node.api.put(pod("an-0", "mallory", number=4, annotations=annotations, limits=held))
    node.process(77, 3, RANK="0", WORLD_SIZE="4", RANKSCOPE_JOB_ID=evil)
    with node.agent() as agent:
        await_line(agent, r'^rankscope_job_info\{.*job_id="mallory/an-0",kind="Pod"')
        await_line(agent, r'^rankscope_rank_info\{.*job_id="mallory/own-0"')
        page = await_line(agent, r'^rankscope_job_names_rejected\{reason="form"\} 3')
        pods = json.loads(agent.get("/api/v1/pods"))
        log = agent.logged("pod mallory/env-0: ")
    assert "\\" not in page
    assert not re.search(r"rankscope_up|x{300}", page)
    assert [one["job_id"] for one in pods["pods"]] == [
        f"mallory/{name}" for name in ("llm", "own-0", "an-0")
    ]
    assert [rank["job_id"] for rank in pods["ranks"]] == ["mallory/own-0"]
    assert log.count("pod mallory/env-0: ") == 1
    assert "\x1b" not in log


def test_without_an_api_server_log_folders_say_which_namespace_a_pod_may_speak_for(node):
    node.api.close()  # the agent gives up waiting for it at once
    node.ring(1, 0, 60_000_000, job_id="run-7").end()
    node.ring(2, 1, 60_000_000, job_id="ml/run-7").end()
    node.ring(3, 2, 60_000_000, job_id="mine").end()
    for number, namespace in ((1, "ml"), (2, "mallory")):
        (node.path / "logs" / f"{namespace}_w-0_{uid(number)}").mkdir(parents=True)
    with node.agent("--no-collector.pods") as agent:
        page = await_line(agent, r'^rankscope_steps_total\{job_id="ml/run-7",rank="0"\} 200')
    infos = [line for line in page.splitlines() if line.startswith("rankscope_rank_info{")]
    assert ['job_id="ml/run-7"' in line and 'pod_namespace="ml"' in line for line in infos] == [
        True
    ]
    assert 'rankscope_training_rings_rejected{reason="identity"} 1' in page
    assert 'rankscope_training_rings_rejected{reason="pod_unknown"} 1' in page
