"""Runs the jobs of `job.py` under a real agent, and reads its page."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents import agents_over

from rankscope_analyzers.demo.free_ports import free_port

RANKS = 2
JOB = "bench/saves"
SCRIPT = Path(__file__).parent / "job.py"
PROBE = Path(__file__).parents[2] / "agent" / "probe"
PATIENCE_SECONDS = 180.0
"""Seconds in which a busy machine trains a hundred steps."""

LOOK_SECONDS = 4.0
"""Agents read their sources every second; a process's end takes another."""

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)", re.MULTILINE)

_LABEL = re.compile(r'(\w+)="([^"]*)"')

Page = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
"""Values of an agent's page by name and labels."""


def value(page: Page, name: str, **labels: str) -> float | None:
    """Return a series of the job's, None if there is none."""
    return page.get((f"rankscope_{name}", frozenset({"job_id": JOB, **labels}.items())))


@dataclass(frozen=True, slots=True)
class Ground:
    """The surroundings of jobs: a directory with their files, and an agent on their rings."""

    folder: Path
    url: str

    def page(self) -> Page:
        """Return the agent's present page."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:  # noqa: S310
            text = answer.read().decode()
        lines = _LINE.findall(text)
        return {(name, frozenset(_LABEL.findall(inside))): float(v) for name, inside, v in lines}


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """Yield a directory with an agent on its rings."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "node-a"
        (folder / "rings").mkdir(parents=True)
        with agents_over([folder], "--no-collector.kernel_log") as (url,):
            yield Ground(folder, url)


@contextlib.contextmanager
def started(place: Ground, what: str) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Start the ranks of a job; those that still run are killed when the block ends."""
    port = str(free_port())
    ranks = []
    try:
        for rank in range(RANKS):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "LOCAL_WORLD_SIZE": str(RANKS),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                "RANKSCOPE_JOB_ID": JOB,
                "RANKSCOPE_RING_DIR": str(place.folder / "rings"),
                "PYTHONPATH": str(PROBE),
            }
            with (place.folder / f"{what}-{rank}.log").open("wb") as log:
                words = [sys.executable, str(SCRIPT), what, str(place.folder)]
                ranks.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log))
        yield ranks
    finally:
        for rank_process in ranks:
            rank_process.kill()
            rank_process.wait()


def two_attempts(place: Ground) -> Page:
    """Run a job that dies in a write and resumes; return the agent's page of it, still running."""
    with started(place, "first") as ranks:
        deadline = time.monotonic() + PATIENCE_SECONDS
        for process in ranks:
            process.wait(max(deadline - time.monotonic(), 1.0))
        time.sleep(LOOK_SECONDS)
    with started(place, "second") as ranks:
        await_files(place, "ready")
        for process in ranks:
            process.send_signal(signal.SIGTERM)
        await_files(place, "done")
        time.sleep(LOOK_SECONDS)
        return place.page()


def await_files(place: Ground, name: str) -> None:
    """Wait until each rank has made a file.

    Raises:
        RuntimeError: they do not.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all((place.folder / f"{name}-{rank}").exists() for rank in range(RANKS)):
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text() for path in place.folder.glob("*.log"))
            raise RuntimeError(f"no rank got to {name!r}:\n{logs[-4000:]}")
        time.sleep(0.1)
