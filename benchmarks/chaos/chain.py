"""The whole chain: a job under the probe, an agent, a watch, Prometheus, Alertmanager, a receiver.

State of the agent and of the watch is on a separate disk, a small tmpfs, which can be full or
read-only without harm to the machine. Without the right to mount one it is a directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents import empty_kernel_log
from benchmarks.chaos import alerting
from benchmarks.chaos.jobs import LONG, LONG_RANKS, LONG_SLOW, LONG_STEPS, Job
from benchmarks.chaos.planted import PLANTS
from benchmarks.chaos.server import Server
from benchmarks.commands import environment
from benchmarks.running_jobs.launch import ForkServer

from rankscope_analyzers.demo.free_ports import free_port

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from alertmanagers import Notifications, webhooks
from fake_api_server import FakeApiServer
from nccl_job_text import start

PROGRAMS = ("prometheus", "prometheus-alertmanager")
STATE_BYTES, RINGS_BYTES = 16 << 20, 128 << 20
"""Sizes of the two disks: a rank's ring and its related files take 6 MiB."""

PLANTED = Path(__file__).with_name("planted.py")
END_SECONDS = 60.0


class ChainError(Exception):
    """The chain cannot be run here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A small file system.

    Args:
        folder: where it is.
        mounted: False if it is only a directory, because mounting was refused.
    """

    folder: Path
    mounted: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """The running parts.

    Args:
        folder: of everything that it writes.
        agent, watch, prometheus, alertmanager: its processes.
        api: the API server that the agent follows pods of.
        sent: what Alertmanager sent.
        ranks: the process that forks ranks.
        long: a job with a slow rank, which trains as long as the chain runs.
        state: the disk of the agent's and of the watch's state.
        rings: the disk of the rings.
    """

    folder: Path
    agent: Server
    watch: Server
    prometheus: Server
    alertmanager: Server
    api: FakeApiServer
    sent: Notifications
    ranks: ForkServer
    long: Job
    state: Disk
    rings: Disk

    @property
    def servers(self) -> Sequence[Server]:
        """Return its processes."""
        return self.agent, self.watch, self.prometheus, self.alertmanager

    @property
    def incidents(self) -> Path:
        """Return the watch's log of incidents."""
        return self.state.folder / "incidents.jsonl"

    def log_of(self, pod: str) -> Path:
        """Return the log of a pod."""
        return self.folder / "logs" / f"team_{pod}_uid-{pod}" / "main" / "0.log"

    def note_fallback(self, pod: str) -> None:
        """Write a pod's NCCL line about a fallback to TCP, which causes an alert."""
        log = self.log_of(pod)
        log.parent.mkdir(parents=True, exist_ok=True)
        extra = ("NET/IB : No device found.",)
        text = start(7, 16, "NET/Socket/0", network="Socket", extra=extra)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.1Z", time.gmtime())
        log.write_text("".join(f"{stamp} stdout F {line}\n" for line in text.splitlines()))

    def remove_pod(self, pod: str) -> None:
        """Remove a pod's logs, as the kubelet does once the pod is gone."""
        shutil.rmtree(self.log_of(pod).parents[1])


@contextlib.contextmanager
def disk(folder: Path, most_bytes: int) -> Iterator[Disk]:
    """Mount a small disk until the block ends."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={most_bytes}", "rankscope-chaos", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield Disk(folder, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def running(folder: Path, ranks: ForkServer, planted: Sequence[str] = ()) -> Iterator[Chain]:
    """Run the chain until the block ends.

    Args:
        folder: an empty one.
        ranks: forks the ranks of all jobs.
        planted: faults of `PLANTS` that the agent or the watch has.

    Raises:
        ChainError: Prometheus or Alertmanager is not installed.
    """
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise ChainError(f"{missing} not on PATH: make servers installs them on Debian, as root")
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(disk(folder / "state", STATE_BYTES))
        rings = stack.enter_context(disk(folder / "rings", RINGS_BYTES))
        api = FakeApiServer(bookmark_seconds=1.0)
        stack.callback(api.close)
        sent = stack.enter_context(webhooks())
        servers = _servers(folder, api.url, sent.url, planted)
        for server in servers:
            stack.callback(server.end)
            server.start()
        long = Job(
            ranks,
            folder / "jobs" / LONG,
            rings.folder,
            ranks=LONG_RANKS,
            steps=LONG_STEPS,
            slow=LONG_SLOW,
        )
        stack.callback(long.end, END_SECONDS)
        for server in servers:
            server.await_ready()
        yield Chain(folder, *servers, api, sent, ranks, long, state, rings)


def _servers(
    folder: Path, api: str, webhook: str, planted: Sequence[str]
) -> tuple[Server, Server, Server, Server]:
    """Return the agent, the watch, Prometheus and Alertmanager; none of them is started."""
    agent, watch, prometheus, alertmanager = (f"127.0.0.1:{free_port()}" for _ in range(4))
    for name in ("logs", "kubelet"):
        (folder / name).mkdir()
    variables = environment() | {"RANKSCOPE_CHAOS_FOLDER": str(folder)}
    of_agent = [*_python("rankscope_agent", planted), f"--web.listen-address={agent}"]
    of_agent += ["--node-name=chaos", f"--path.ring-dir={folder}/rings", "--simulate=h100x1"]
    of_agent += [f"--path.kubelet={folder}/kubelet", f"--path.pod-logs={folder}/logs"]
    of_agent += [f"--path.state={folder}/state", "--collector.interval=1"]
    of_agent += [f"--path.kmsg={empty_kernel_log(folder)}"]
    of_agent += [f"--kubernetes.api={api}", "--kubernetes.start-jitter=0"]
    of_watch = [*_python("rankscope_analyzers", planted), "watch", f"--agent=http://{agent}"]
    of_watch += ["--interval=1s", "--step-interval=1s", f"--web.listen-address={watch}"]
    of_watch += [f"--state={folder}/state/watch.json", "--since=3m"]
    of_watch += [f"--incident-log={folder}/state/incidents.jsonl"]
    config = alerting.write_prometheus(folder, agent, watch, alertmanager)
    of_prometheus = ["prometheus", f"--config.file={config}", f"--web.listen-address={prometheus}"]
    of_prometheus += [f"--storage.tsdb.path={folder}/prometheus"]
    of_prometheus += [f"--rules.alert.resend-delay={alerting.RESEND_SECONDS}s"]
    of_prometheus += [f"--rules.alert.for-grace-period={alerting.GRACE_SECONDS}s"]
    config = alerting.write_alertmanager(folder, webhook)
    of_alertmanager = ["prometheus-alertmanager", f"--config.file={config}"]
    of_alertmanager += [f"--storage.path={folder}/alertmanager", "--cluster.listen-address="]
    # Notifications are saved each second: otherwise a killed Alertmanager forgets a quarter of an
    # hour.
    of_alertmanager += [f"--web.listen-address={alertmanager}", "--data.maintenance-interval=1s"]
    plain = os.environ | {"GOGC": "400"}  # they have little garbage, and live for minutes
    return (
        Server("agent", of_agent, folder, f"http://{agent}", "/healthz", variables),
        Server("watch", of_watch, folder, f"http://{watch}", "/metrics", variables),
        Server("prometheus", of_prometheus, folder, f"http://{prometheus}", "/-/ready", plain),
        Server(
            "alertmanager",
            of_alertmanager,
            folder,
            f"http://{alertmanager}",
            "/-/ready",
            plain,
        ),
    )


def _python(module: str, planted: Sequence[str]) -> Sequence[str]:
    """Return the command of a module, with the planted faults for this module."""
    own = [name for name in planted if PLANTS[name].module == module]
    return [sys.executable, str(PLANTED), module, ",".join(own)]
