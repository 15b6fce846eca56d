"""Nodes with a real agent each, an API server, and pods of a job that trains and of a tenant."""

from __future__ import annotations

import contextlib
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hostile.attackers import NAMESPACE, PODS, VOLUME, uid

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from fake_api_server import FakeApiServer
from nccl_job_text import start
from pod_json import pod
from running_agent import HEALTH, RunningAgent, running_agent

TEAM = "team"
PASSWORD = "correct horse"  # noqa: S105 - of agents on loopback that live for minutes
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105
SHOWN = "Basic " + b64encode(f"prometheus:{PASSWORD}".encode()).decode()
BCRYPT_ROUNDS = 10
"""The binary logarithm of the work that each guess of the password takes."""

ANNOTATION = "x" * 3000
CHURN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its folder, its API server and its agent."""

    folder: Path
    api: FakeApiServer
    agent: RunningAgent

    def add_pod(self, job: str, name: str, number: int) -> Path:
        """Have a pod of a job of the team on the node, with a log; return its volume."""
        labels = {"batch.kubernetes.io/job-name": job}
        owner = ("batch/v1", "Job", job)
        made = pod(name, TEAM, number=number, labels=labels, owner=owner)
        made["spec"]["nodeName"] = self.folder.name
        identity: str = made["metadata"]["uid"]
        volume = self.folder / "kubelet" / "pods" / identity / VOLUME
        volume.mkdir(parents=True)
        log = self.folder / "logs" / f"{TEAM}_{name}_{identity}" / "main" / "0.log"
        log.parent.mkdir(parents=True)
        log.write_text("".join(start(rank, 4, "NET/IB/0") for rank in range(4)))
        self.api.put(made)
        return volume


@contextlib.contextmanager
def node(folder: Path, *flags: str) -> Iterator[Node]:
    """Run an agent on a node without pods until the block ends.

    Args:
        folder: the node's, which is created.
        flags: further ones of the agent.
    """
    folder.mkdir()
    with (
        contextlib.closing(FakeApiServer(bookmark_seconds=1.0)) as api,
        running_agent(folder, *_flags(folder, api), *flags) as agent,
    ):
        yield Node(folder, api, agent)


def _flags(folder: Path, api: FakeApiServer) -> Sequence[str]:
    import bcrypt  # only here: other benchmarks do without it

    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(BCRYPT_ROUNDS)).decode()
    (folder / "web.yml").write_text(f"basic_auth_users: {{prometheus: '{hashed}'}}\n")
    (folder / "token").write_text(TOKEN)
    return (
        HEALTH,
        f"--web.config.file={folder}/web.yml",
        f"--web.token-file={folder}/token",
        f"--node-name={folder.name}",
        f"--kubernetes.api={api.url}",
        "--kubernetes.start-jitter=0",
    )


def tenants_pod(node_name: str, number: int, turn: int) -> Mapping[str, Any]:
    """Return a pod of the tenant, other annotations and labels each time."""
    texts = {f"a{n}": f"{turn}{ANNOTATION}" for n in range(4)}
    labels = {"rankscope.io/class": "production", "rankscope.io/project": f"{turn}{'y' * 60}"}
    made = pod(
        f"bad-{number}",
        NAMESPACE,
        number=0,
        annotations={**texts, "k8s.v1.cni.cncf.io/network-status": ANNOTATION},
        labels=labels,
        owner=("kubeflow.org/v1", "PyTorchJob", ANNOTATION),
    )
    made["metadata"]["uid"] = uid(number)
    made["spec"]["nodeName"] = node_name
    return made


@contextlib.contextmanager
def annotating(nodes: Sequence[Node]) -> Iterator[list[int]]:
    """Change annotations of the tenant's pods until the block ends; yield the count in a list."""
    ended, count = threading.Event(), [0]

    def annotate() -> None:
        while not ended.wait(CHURN_SECONDS):
            for one in nodes:
                one.api.put(tenants_pod(one.folder.name, count[0] % PODS, count[0]))
            count[0] += 1

    thread = threading.Thread(target=annotate)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()
