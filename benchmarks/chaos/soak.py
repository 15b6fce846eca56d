"""An agent and a watch for a long time, over many short jobs: what grows, and how fast.

`python -m benchmarks soak` takes a minute, `soak-60m` an hour and a thousand jobs.
"""

from __future__ import annotations

import contextlib
import http.client
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents import empty_kernel_log
from benchmarks.chaos.server import Server, Use, get
from benchmarks.commands import environment

from rankscope_analyzers.demo.free_ports import free_port

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from ring_writer import RingWriter

RANKS, CAPACITY, STEPS = 4, 1024, 40
STEP_NS = 100_000_000
LIVE = 2
LOOK_SECONDS = 1.0
REMEMBERED = "30s"
"""Seconds that the watch looks back: longer than a job, so that consecutive jobs overlap."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Resources of a process at one moment.

    Args:
        seconds: since the soak began.
        use: memory, descriptors and threads.
        series: on its page.
    """

    seconds: float
    use: Use
    series: int


@dataclass(frozen=True, slots=True)
class Soaked:
    """The result of a soak.

    Args:
        seconds: how long it lasted.
        jobs: how many began and ended in that time.
        moments: of each process, by its name.
        unanswered: requests without a response.
    """

    seconds: float
    jobs: int
    moments: Mapping[str, Sequence[Moment]]
    unanswered: int


@contextlib.contextmanager
def _servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    agent, watch = (f"127.0.0.1:{free_port()}" for _ in range(2))
    (folder / "rings").mkdir()
    of_agent = [sys.executable, "-m", "rankscope_agent", f"--web.listen-address={agent}"]
    of_agent += ["--node-name=soak", f"--path.ring-dir={folder}/rings", f"--path.state={folder}"]
    of_agent += [f"--path.kubelet={folder}", f"--path.pod-logs={folder}/none"]
    of_agent += [f"--path.kmsg={empty_kernel_log(folder)}", "--collector.interval=1"]
    of_watch = [sys.executable, "-m", "rankscope_analyzers", "watch", f"--agent=http://{agent}"]
    of_watch += ["--interval=1s", "--step-interval=1s", f"--web.listen-address={watch}"]
    of_watch += [f"--since={REMEMBERED}", f"--state={folder}/watch.json"]
    servers = (
        Server("agent", of_agent, folder, f"http://{agent}", "/healthz", environment()),
        Server("watch", of_watch, folder, f"http://{watch}", "/metrics", environment()),
    )
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.await_ready()
        yield servers
    finally:
        for server in servers:
            server.end()


def _begun(folder: Path, number: int) -> list[RingWriter]:
    """Begin a job: the rings of its ranks, one of which is slow in every third job."""
    created = time.time_ns() - (STEPS + 5) * STEP_NS
    rings = [
        RingWriter(
            folder,
            f"{RANKS * number + rank + 1}-1.ring",
            rank=rank,
            local_rank=rank,
            world_size=RANKS,
            local_world_size=RANKS,
            job_id=f"soak-{number}",
            pid=RANKS * number + rank + 1,
            capacity=CAPACITY,
            created_unix_ns=created,
        )
        for rank in range(RANKS)
    ]
    for rank, ring in enumerate(rings):
        slow = rank == 1 and number % 3 == 0
        compute = 60_000_000 if slow else 30_000_000
        for step in range(STEPS):
            ring.step(
                start_unix_ns=created + step * STEP_NS,
                step_ns=STEP_NS,
                compute_ns=compute,
                sync_ns=80_000_000 - compute,
            )
    return rings


def _ended(rings: Sequence[RingWriter]) -> None:
    for ring in rings:
        ring.end()
        ring.path.unlink()


def _moment(server: Server, began: float) -> Moment:
    page = get(f"{server.url}/metrics")
    series = sum(not line.startswith("#") for line in page.splitlines())
    return Moment(time.monotonic() - began, server.use(), series)


def _looked(server: Server, began: float) -> Iterator[Moment]:
    """Yield a server's present resources, nothing if it does not answer."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        yield _moment(server, began)


def soak(seconds: float, jobs: int) -> Soaked:
    """Have jobs begin and end at a steady pace, two of them at any moment."""
    looks, number = 0, 0
    moments: dict[str, list[Moment]] = {"agent": [], "watch": []}
    with (
        tempfile.TemporaryDirectory(prefix="rankscope-soak-") as name,
        _servers(Path(name)) as all_,
    ):
        live: deque[list[RingWriter]] = deque()
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds or number < jobs:
            while number < min(jobs, jobs * passed / seconds):
                live.append(_begun(Path(name) / "rings", number))
                number += 1
                if len(live) > LIVE:
                    _ended(live.popleft())
            for server in all_:
                looks += 1
                moments[server.name] += _looked(server, began)
            time.sleep(LOOK_SECONDS)
        for rings in live:
            _ended(rings)
    return Soaked(passed, number, moments, looks - sum(map(len, moments.values())))


def slope(moments: Sequence[Moment]) -> float:
    """Return how fast resident memory grows in the second half, in MiB per hour.

    Least squares; the first half fills caches and what is remembered of jobs.
    """
    half = moments[len(moments) // 2 :]
    fitted = statistics.linear_regression(
        [one.seconds / 3600 for one in half], [one.use.resident_mib for one in half]
    )
    return float(fitted.slope)


def report(soaked: Soaked) -> str:
    """Return the text on a soak."""
    rows = [
        f"{soaked.jobs} jobs of {RANKS} ranks in {soaked.seconds:.0f} s;"
        f" questions not answered {soaked.unanswered}"
    ]
    for name, moments in soaked.moments.items():
        half = moments[len(moments) // 2 :]
        uses = [one.use for one in half]
        series = [one.series for one in half]
        rows.append(
            f"{name}: {half[0].use.resident_mib:.0f} MiB at half time,"
            f" {half[-1].use.resident_mib:.0f} at the end, {slope(moments):+.1f} MiB per hour;"
            f" descriptors {min(u.descriptors for u in uses)} to"
            f" {max(u.descriptors for u in uses)}; threads {min(u.threads for u in uses)} to"
            f" {max(u.threads for u in uses)}; series {min(series)} to {max(series)}"
        )
    return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class Length:
    """Duration, and number of jobs."""

    seconds: float
    jobs: int


SHORT = Length(60.0, 40)
FULL = Length(3600.0, 1000)


def measure(length: Length = SHORT) -> Soaked:
    """Soak for a given duration."""
    return soak(length.seconds, length.jobs)
