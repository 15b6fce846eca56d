"""Resident memory of the agent in its two kinds of deployments, with 30 pods and 8 ranks.

One agent is in a separate network, with eight simulated GPUs; the other is in the node's network,
where pyroute2 is loaded. Both are scraped every second for minutes.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import memory_mib, scrape, serving
from benchmarks.ring_writer import training

from rankscope_analyzers.demo.free_ports import free_port

PODS = 30
RANKS = 8
STEPS_PER_SECOND = 10.0
SECONDS = 180
GOALS_MIB: Mapping[str, float] = {"own network": 48.0, "node's network": 64.0}
FLAGS: Mapping[str, Sequence[str]] = {
    "own network": ("--simulate=h100x8",),  # whose sysfs is not a node's
    "node's network": (),
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of one agent in MiB, at the end and at its peak."""

    resident: float
    peak: float


def measure(seconds: int = SECONDS) -> Mapping[str, Memory]:
    """Run each agent for some time; the benchmark itself must run in the node's network."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "kubelet" / "pod-resources").mkdir(parents=True)
        api = stack.enter_context(_api_server())
        stack.enter_context(training(folder, RANKS, STEPS_PER_SECOND))
        return {kind: _agent(folder, api, flags, seconds) for kind, flags in FLAGS.items()}


def _agent(folder: Path, api: str, flags: Sequence[str], seconds: int) -> Memory:
    port = free_port()
    command = [
        *(sys.executable, "-m", "rankscope_agent", f"--web.listen-address=127.0.0.1:{port}"),
        *(f"--path.ring-dir={folder}", f"--path.state={folder}/state"),
        *(f"--path.kubelet={folder}/kubelet", f"--kubernetes.api={api}"),
        *("--kubernetes.start-jitter=0", "--node-name=n1", *flags),
    ]
    with serving(command, port) as pid:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            scrape(port)
            time.sleep(1.0)
        return Memory(memory_mib(pid, "VmRSS"), memory_mib(pid, "VmHWM"))


@contextlib.contextmanager
def _api_server() -> Iterator[str]:
    """Serve one list of pods, and watches in which nothing happens."""
    body = json.dumps(
        {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "1"},
            "items": [_pod(number) for number in range(PODS)],
        }
    ).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = b"" if "watch=" in self.path else body
            if not answer:
                time.sleep(30.0)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _pod(number: int) -> Mapping[str, Any]:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llm", "uid": "o"}
    variables = [{"name": "RANK", "value": str(number)}, {"name": "WORLD_SIZE", "value": str(PODS)}]
    return {
        "metadata": {
            "name": f"llm-worker-{number}",
            "namespace": "team",
            "uid": f"0f9d2c1e-7a51-4b7e-9a35-{number:012d}",
            "labels": {"training.kubeflow.org/job-name": "llm"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "pytorch", "env": variables}]},
        "status": {"phase": "Running"},
    }


def report(found: Mapping[str, Memory]) -> str:
    """Write the figures and the goals."""
    return "\n".join(
        f"agent in {kind:15} {memory.resident:5.1f} MiB resident, {memory.peak:5.1f} MiB at most,"
        f" goal at most {GOALS_MIB[kind]:.0f} MiB"
        for kind, memory in found.items()
    )


if __name__ == "__main__":
    print(report(measure()))
