"""Whether an incident is lost or reported twice while agents and watches are restarted one by one.

Four real agents, each with two ranks of four jobs; a watch of all jobs, and two that share them. A
rank of some jobs becomes slow. Then every agent is restarted, every other one in the middle of a
response, and then every watch, two of the three by SIGKILL; during that time ranks of other jobs
become slow. At the end all ranks are as fast as at the beginning.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.server import STOP_SECONDS, Server, comes_true
from benchmarks.commands import environment
from benchmarks.cutting_proxy import CuttingProxy

from rankscope_analyzers.demo.free_ports import free_port

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from ring_writer import RingWriter

NODES, JOBS, RANKS = 4, 8, 4
STEP_NS = 250_000_000
COMPUTE_NS, SLOW_NS = 100_000_000, 160_000_000
SLOW_RANK = 2
FIRST_SLOW, THEN_SLOW = (0, 2, 5), (1, 6)
"""Jobs with a slow rank: before anything is restarted, and during the restarts."""

WARM_STEPS = 80
CHANGE_SECONDS = 240.0
"""Longest time for an incident of a running job to open, or to be over."""


@dataclass(frozen=True, slots=True)
class Reported:
    """The content of the incident logs of one watch, or of those that share jobs.

    Args:
        changes: of each job: opened, changed and closed, in their order.
        doubled: pairs of incident and number that occur twice.
        ranks: that were named.
    """

    changes: Mapping[str, Sequence[str]]
    doubled: int
    ranks: frozenset[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Restarted:
    """The results.

    Args:
        alone: reports of the watch of all jobs.
        shared: reports of the two that share them.
        cuts: responses that ended half-way.
        unfinished: conditions that were not met in time.
    """

    alone: Reported
    shared: Reported
    cuts: int
    unfinished: Sequence[str]


@dataclass(slots=True)
class Training:
    """Writes the steps of all jobs, in real time, until it is stopped.

    Args:
        folders: of rings, one for each node.
        slow: jobs that have a slow rank now.
    """

    folders: Sequence[Path]
    slow: set[int] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Training:
        """Begin, as if some steps had been made before."""
        rings = [self._ring(job, rank) for job in range(JOBS) for rank in range(RANKS)]
        begin = time.time_ns() - WARM_STEPS * STEP_NS
        for step in range(WARM_STEPS):
            self._step(rings, begin + step * STEP_NS)
        self._thread = threading.Thread(target=self._run, args=(rings,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join()

    _thread: threading.Thread = field(init=False)

    def _ring(self, job: int, rank: int) -> tuple[int, int, RingWriter]:
        node = (job + rank * 2 // RANKS) % NODES
        pid = 1000 + job * RANKS + rank
        ring = RingWriter(
            self.folders[node],
            f"{pid}-1.ring",
            pid=pid,
            rank=rank,
            local_rank=rank % 2,
            local_world_size=2,
            node=f"node-{node}",
            job_id=name_of(job),
            capacity=4096,
            created_unix_ns=time.time_ns() - WARM_STEPS * STEP_NS,
        )
        return job, rank, ring

    def _step(self, rings: Sequence[tuple[int, int, RingWriter]], start: int) -> None:
        for job, rank, ring in rings:
            is_slow = job in self.slow and rank == SLOW_RANK
            compute = SLOW_NS if is_slow else COMPUTE_NS + rank * 100_000
            ring.step(
                start_unix_ns=start,
                step_ns=STEP_NS,
                compute_ns=compute,
                sync_ns=STEP_NS - 20_000_000 - compute,
            )

    def _run(self, rings: Sequence[tuple[int, int, RingWriter]]) -> None:
        due = time.time_ns()
        while not self._stop.wait(max(0.0, (due + STEP_NS - time.time_ns()) / 1e9)):
            self._step(rings, due)
            due += STEP_NS
        for _, _, ring in rings:
            ring.end()


def name_of(job: int) -> str:
    """Return the name of a job."""
    return f"team/rolling-{job}"


def measure() -> Restarted:
    """Restart everything, one by one."""
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as name, _chain(Path(name)) as all_:
        agents, proxies, watches, training = all_
        unfinished: list[str] = []

        def wait(change: str, jobs: Sequence[int]) -> None:
            if not comes_true(lambda: _all(watches, change, jobs), CHANGE_SECONDS):
                unfinished.append(f"{change} of {[name_of(job) for job in jobs]}")

        training.slow |= set(FIRST_SLOW)
        wait("opened", FIRST_SLOW)
        training.slow |= set(THEN_SLOW)
        for number, (agent, proxy) in enumerate(zip(agents, proxies, strict=True)):
            _restart_agent(agent, proxy if number % 2 else None)
        for watch, by in zip(
            watches, (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL), strict=True
        ):
            _restart(watch, by)
        wait("opened", (*FIRST_SLOW, *THEN_SLOW))
        training.slow.clear()
        wait("closed", (*FIRST_SLOW, *THEN_SLOW))
        alone, *shared = (_lines(watch) for watch in watches)
        cuts = sum(proxy.cuts for proxy in proxies)
        return Restarted(_reported([alone]), _reported(shared), cuts, unfinished)


def _restart(server: Server, by: signal.Signals) -> None:
    server.signal(by)
    if not comes_true(lambda: server.exit_code is not None, STOP_SECONDS):
        raise RuntimeError(f"{server.name} does not end")
    server.start()
    server.await_ready()


def _restart_agent(agent: Server, proxy: CuttingProxy | None) -> None:
    """Restart an agent: like Kubernetes, or by SIGKILL in the middle of a response."""
    if proxy is None:
        _restart(agent, signal.SIGTERM)
        return
    proxy.cut_next(agent.kill)
    if not comes_true(lambda: agent.exit_code is not None, CHANGE_SECONDS):
        raise RuntimeError(f"nobody asked {agent.name}")
    agent.start()
    agent.await_ready()


Chain = tuple[Sequence[Server], Sequence[CuttingProxy], Sequence[Server], Training]


@contextlib.contextmanager
def _chain(folder: Path) -> Iterator[Chain]:
    """Run agents, proxies before them, and watches until the block ends."""
    rings = [folder / f"node-{number}" / "rings" for number in range(NODES)]
    for one in rings:
        one.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        agents = [_agent(one.parent) for one in rings]
        proxies = [
            stack.enter_context(CuttingProxy(int(agent.url.rpartition(":")[2]))) for agent in agents
        ]
        watches = [
            _watch(folder / name, proxies, words)
            for name, words in (
                ("alone", ()),
                ("shard-0", ("--total-shards=2", "--shard=0")),
                ("shard-1", ("--total-shards=2", "--shard=1")),
            )
        ]
        training = stack.enter_context(Training(rings))
        for server in (*agents, *watches):
            stack.callback(server.end)
            server.start()
        for server in (*agents, *watches):
            server.await_ready()
        yield agents, proxies, watches, training


def _agent(folder: Path) -> Server:
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "rankscope_agent", f"--web.listen-address={address}"]
    command += [f"--node-name={folder.name}", f"--path.ring-dir={folder}/rings"]
    command += [f"--path.state={folder}", f"--path.kubelet={folder}/none"]
    command += [f"--path.pod-logs={folder}/none"]
    return Server(folder.name, command, folder, f"http://{address}", "/healthz", environment())


def _watch(folder: Path, proxies: Sequence[CuttingProxy], words: Sequence[str]) -> Server:
    folder.mkdir()
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "rankscope_analyzers", "watch", *words]
    command += [word for one in proxies for word in ("--agent", f"http://127.0.0.1:{one.port}")]
    command += ["--interval=10s", "--step-interval=2s", f"--web.listen-address={address}"]
    command += [f"--state={folder}/state", f"--incident-log={folder}/incidents"]
    return Server(folder.name, command, folder, f"http://{address}", "/metrics", environment())


def _lines(watch: Server) -> Sequence[Mapping[str, Any]]:
    log = watch.folder / "incidents"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _all(watches: Sequence[Server], change: str, jobs: Sequence[int]) -> bool:
    """Return True if the watch of all jobs, and the others together, reported a change of each."""
    alone, *shared = (
        {line["job_id"] for line in _lines(watch) if line["change"] == change} for watch in watches
    )
    wanted = {name_of(job) for job in jobs}
    return wanted <= alone and wanted <= frozenset().union(*shared)


def _reported(logs: Sequence[Sequence[Mapping[str, Any]]]) -> Reported:
    """Return the logs' content on these jobs: agents also report others on this machine."""
    own = {name_of(job) for job in range(JOBS)}
    lines = [line for log in logs for line in log if line["job_id"] in own]
    changes: dict[str, list[str]] = {}
    for line in lines:
        changes.setdefault(line["job_id"], []).append(line["change"])
    pairs = Counter((line["incident"], line["number"]) for line in lines)
    ranks = frozenset((line["job_id"], tuple(line["ranks"])) for line in lines)
    return Reported(changes, sum(count - 1 for count in pairs.values()), ranks)


def report(done: Restarted) -> str:
    """Return the results as text."""
    rows = [
        f"{NODES} agents and 3 watches restarted one by one, {done.cuts} of the agents in the"
        f" middle of an answer; {JOBS} jobs, {len(FIRST_SLOW) + len(THEN_SLOW)} with a slow rank"
    ]
    for name, reported in (("one watch", done.alone), ("two that share jobs", done.shared)):
        rows.append(f"  {name}: {_counts(reported)}")
    rows.append(
        f"  the same jobs and ranks: {'yes' if done.alone.ranks == done.shared.ranks else 'NO'}"
    )
    rows += [f"  not reported in time: {one}" for one in done.unfinished]
    return "\n".join(rows)


def _counts(reported: Reported) -> str:
    slow = {name_of(job) for job in (*FIRST_SLOW, *THEN_SLOW)}
    opened = {job: changes.count("opened") for job, changes in reported.changes.items()}
    lost = slow - {job for job, count in opened.items() if count}
    again = sum(count - 1 for count in opened.values() if count)
    false = set(reported.changes) - slow
    return (
        f"{len(slow) - len(lost)} incidents, {len(lost)} lost, {again} opened again,"
        f" {reported.doubled} lines twice, {len(false)} of sound jobs"
    )
