"""Memory of `rankscope watch --cluster-jobs` in a cluster of many pods and jobs that change.

The API server is the one that tests use, in a separate process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commands import environment
from benchmarks.processes import cpu_seconds, memory_mib, scrape

from rankscope_analyzers.demo.free_ports import free_port

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fake_api_server import FakeApiServer, Store
from kubeconfigs import written
from workload_objects import condition, kind, pod, thing

PODS, JOBS = 2000, 500
LABELS = {
    "PyTorchJob": "training.kubeflow.org/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "RayJob": "ray.io/originated-from-cr-name",
    "Job": "batch.kubernetes.io/job-name",
}
VARIABLES, VARIABLE = 60, "v" * 100
"""Padding that makes a pod's JSON some 10 kB, as for one of a training job."""

SECONDS, EVERY = 90.0, 5.0
MOVES_A_SECOND = 10
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ClusterMemory:
    """The cost of one watch.

    Args:
        following: True if it had --cluster-jobs.
        resident: MiB, every five seconds.
        peak: MiB at most.
        cpu: seconds in total.
    """

    following: bool
    resident: tuple[float, ...]
    peak: float
    cpu: float


def measure(seconds: float = SECONDS) -> tuple[ClusterMemory, ...]:
    """Watch the cluster with and without its jobs."""
    return tuple(_watched(one, seconds) for one in (False, True))


def _watched(following: bool, seconds: float) -> ClusterMemory:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, _cluster() as url:
        command = [sys.executable, "-m", "rankscope_analyzers", "watch", "--cluster"]
        command += ["--interval=1s", f"--web.listen-address=127.0.0.1:{port}"]
        command += ["--cluster-jobs"] if following else []
        surroundings = {**environment(), "KUBECONFIG": str(written(url, Path(folder)))}
        with subprocess.Popen(command, env=surroundings, stderr=subprocess.DEVNULL) as watch:
            try:
                _await(port, "rankscope_job_held_gpus{" if following else "rankscope_watch_failed")
                found = []
                for _ in range(int(seconds / EVERY)):
                    time.sleep(EVERY)
                    scrape(port)
                    found.append(memory_mib(watch.pid, "VmRSS"))
                peak = memory_mib(watch.pid, "VmHWM")
                return ClusterMemory(following, tuple(found), peak, cpu_seconds(watch.pid))
            finally:
                watch.kill()


def _await(port: int, series: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if series in scrape(port, {}).decode():
                return
        except (OSError, RuntimeError):
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the watch does not export {series}")


@contextmanager
def _cluster() -> Iterator[str]:
    """Serve the cluster from another process; yield its address."""
    command = [sys.executable, "-m", "benchmarks.cluster_jobs_memory"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(), cwd=Path(__file__).parents[1]
    ) as server:
        try:
            yield server.stdout.readline().strip() if server.stdout else ""
        finally:
            server.kill()


def large_pod(number: int, job: str, of: str) -> dict[str, Any]:
    """Return a pod of a job, as large as those of training jobs."""
    found = pod(f"{job}-{number}", {LABELS[of]: job})
    variables = [{"name": f"V{index}", "value": VARIABLE} for index in range(VARIABLES)]
    found["spec"]["containers"][0]["env"] = variables
    return found


def serve() -> None:
    """Serve a cluster in which pods change, for ever."""
    server = FakeApiServer()
    names = [f"job-{index}" for index in range(JOBS)]
    kinds = [list(LABELS)[index % len(LABELS)] for index in range(JOBS)]
    for of in LABELS:
        row = kind(of, "batch" if of == "Job" else None)
        store = Store()
        for name, one in zip(names, kinds, strict=True):
            if one == of:
                status = {"conditions": [condition("Running")], "active": PODS // JOBS}
                store.put(thing(row, {"parallelism": PODS // JOBS}, status, name))
        server.collections[f"/apis/{row.group}/{row.versions[0]}/{row.plural}"] = store
    pods = [
        large_pod(number, name, of)
        for name, of in zip(names, kinds, strict=True)
        for number in range(PODS // JOBS)
    ]
    for each in pods:
        server.put(each)
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    while True:
        for each in pods:
            time.sleep(1 / MOVES_A_SECOND)
            server.put(each)
            with server.store.changed:
                del server.store.log[:-1000]


def report(costs: Sequence[ClusterMemory]) -> str:
    """Return the figures."""
    size = len(json.dumps(large_pod(0, "job-0", "Job")))
    lines = [f"rankscope watch in a cluster of {PODS} pods of {size} bytes and {JOBS} jobs"]
    for one in costs:
        how = "with   " if one.following else "without"
        lines.append(
            f"  {how} --cluster-jobs: {one.resident[-1]:.0f} MiB, at first {one.resident[0]:.0f},"
            f" peak {one.peak:.0f}; {one.cpu:.1f} s CPU in {len(one.resident) * EVERY:.0f} s"
        )
        lines.append("    " + " ".join(f"{value:.1f}" for value in one.resident))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    serve()
