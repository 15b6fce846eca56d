"""The path of a running job: rings, real agents that read them, and `rankscope diagnose`.

Many jobs run at a time, as in a cluster, and one command judges them all. Agents are restarted for
every such batch, as they remember jobs for ten minutes after their end.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agents import agents_over
from benchmarks.diagnosed import diagnose
from benchmarks.straggler_suite.job import Job
from benchmarks.straggler_suite.rings import RankRing, job_id, placed, rank_rings

AGENTS = 8
"""Agents at a time; each reports on as many whole nodes as it reads rings of."""

RINGS_OF_AN_AGENT = 64
"""Rings that an agent reads in one directory."""

STANDING = "1d"
"""Seconds without a step after which a job hangs. A busy machine may take minutes from the writing
of rings, which is the job's end, to the verdict."""

NOT_OF_THE_JOBS = (
    "pods", "starvation", "flight_recorder", "nccl_log", "nccl_ras", "nccl_inspector", "rdma",
    "netdev", "topology", "nvml", "dcgm", "kernel_log", "host",
)  # fmt: skip
"""Collectors that report on the machine that this runs on, where no simulated job runs."""


@dataclass(frozen=True, slots=True)
class Running:
    """A simulated job in the form of its rings.

    Args:
        name: its name in the suite.
        job_id: its name in rings.
        labels: its labels.
        rings: what its processes wrote.
        shift: seconds by which the rings' times are later than the labels'.
    """

    name: str
    job_id: str
    labels: Mapping[str, Any]
    rings: Sequence[RankRing]
    shift: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The report on a job: its member of the JSON, or why it has none."""

    job: Running
    reported: Mapping[str, Any] | None
    problem: str = ""


def running(made: Job, extended: bool = True) -> Running:
    """Prepare a job whose last step has just ended, under a new probe or an old one."""
    shift = time.time() - made.labels["exec_end_unix"][-1]
    rings = rank_rings(made, shift, extended)
    return Running(made.meta["job"], job_id(made), made.labels, rings, shift)


def answers(jobs: Iterable[Running], since: str) -> Iterator[Answer]:
    """Get the verdict on every job, as a user would.

    Args:
        jobs: simulated jobs, as they end.
        since: the argument of `--since`.
    """
    for batch in batches(jobs):
        with agents(batch) as urls:
            yield from _judged([job for job, _ in batch], urls, since)


Placed = tuple[Running, Mapping[str, int]]
"""A job with the number of the agent that reports on each of its nodes."""


def batches(jobs: Iterable[Running]) -> Iterator[list[Placed]]:
    """Yield as many jobs at a time as the agents have capacity for.

    Raises:
        ValueError: a job is too large for all agents together.
    """
    batch: list[Placed] = []
    used = [0] * AGENTS
    for job in jobs:
        places = _take(used, job)
        if places is None:
            yield batch
            batch, used = [], [0] * AGENTS
            places = _take(used, job)
        if places is None:
            room = AGENTS * RINGS_OF_AN_AGENT
            raise ValueError(f"{job.name} has {len(job.rings)} rings, room is for {room}")
        batch.append((job, places))
    if batch:
        yield batch


def _take(used: list[int], job: Running) -> Mapping[str, int] | None:
    """Find an agent for each node of a job; None if one has none."""
    after, places = list(used), {}
    for node, count in Counter(ring.node for ring in job.rings).items():
        free = [agent for agent, taken in enumerate(after) if taken + count <= RINGS_OF_AN_AGENT]
        if not free:
            return None
        places[node] = free[0]
        after[free[0]] += count
    used[:] = after
    return places


@contextlib.contextmanager
def agents(batch: Sequence[Placed]) -> Iterator[list[str]]:
    """Run the agents of a batch on its rings; yield their addresses."""
    count = 1 + max(agent for _, places in batch for agent in places.values())
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_memory())))
        folders = [home / f"agent-{number}" for number in range(count)]
        for folder in folders:
            (folder / "rings").mkdir(parents=True)
        written = [
            (folders[places[ring.node]] / "rings", ring)
            for job, places in batch
            for ring in job.rings
        ]
        stack.enter_context(placed(written))
        off = [f"--no-collector.{name}" for name in NOT_OF_THE_JOBS]
        yield stack.enter_context(agents_over(folders, *off))


def _memory() -> Path | None:
    """Return a directory in memory, as for rings on nodes; None if there is none."""
    shared = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
    return shared if shared.is_dir() else None


def _judged(jobs: Sequence[Running], urls: Sequence[str], since: str) -> Iterator[Answer]:
    """Judge jobs with one command; if that fails, each separately, to find the cause."""
    words = [*(f"--agent={url}" for url in urls), f"--since={since}", f"--hang-after={STANDING}"]
    reported, problem = diagnose(words)
    for job in jobs:
        alone, why = reported, problem
        if reported is None:
            alone, why = diagnose([*words, f"--job={job.job_id}"])
        answer = None if alone is None else alone.get(job.job_id)
        yield Answer(job, answer, "" if answer else why or "the answer does not mention it")
