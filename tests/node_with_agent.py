"""A node with its agent, whose pods come and go."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError

from fake_api_server import FakeApiServer
from pod_json import uid
from running_agent import RunningAgent, running_agent

GPU = "GPU-8f6a1b2c-0d3e-4f50-9a61-7b8c9d0e1f2a"
LLM = ("kubeflow.org/v1", "PyTorchJob", "llm")
CID = "ab" * 32


class Node:
    """A node with a kubelet, an API server, processes and an agent."""

    def __init__(self, path: Path, api: FakeApiServer) -> None:
        self.path = path
        self.api = api
        (path / "proc").mkdir()
        (path / "kubelet/pod-resources").mkdir(parents=True)

    def process(self, pid: int, number: int, **environ: str) -> None:
        folder = self.path / "proc" / str(pid)
        folder.mkdir()
        text = "\0".join(f"{key}={value}" for key, value in environ.items())
        (folder / "environ").write_text(text)
        (folder / "cgroup").write_text(f"0::/kubepods/pod{uid(number)}/{CID}")

    def volume(self, number: int) -> Path:
        parts = f"kubelet/pods/{uid(number)}/volumes/kubernetes.io~empty-dir/rankscope"
        (self.path / parts).mkdir(parents=True)
        return self.path / parts

    @contextlib.contextmanager
    def agent(self) -> Iterator[RunningAgent]:
        flags = [
            "--node-name=n1",
            f"--kubernetes.api={self.api.url}",
            "--kubernetes.start-jitter=0",
            f"--path.procfs={self.path}/proc",
            f"--path.sysfs={self.path}/sys",
            "--collector.interval=0.2",
        ]
        with running_agent(self.path, *flags) as agent:
            yield agent


def eventually(ask: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(HTTPError):  # 503 as long as a collector has not run yet
            if ask():
                return True
        time.sleep(0.05)
    return ask()


def ready(agent: RunningAgent) -> bool:
    try:
        return agent.get("/readyz").startswith("Every")
    except HTTPError:  # 503 as long as a collector has not run
        return False
