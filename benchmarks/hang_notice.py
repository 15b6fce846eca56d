"""How soon a watch reports that a job hangs: from its last step until it is on the watch's page.

The watch is the one whose alert wakes people, at the shortest interval that it accepts and with the
setting that hangs.md recommends to those who want a report within ten seconds; the agent runs with
its defaults.
"""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.agents import agents_over
from benchmarks.commands import environment
from benchmarks.hangs import RANKS, hanging_job

HANG_AFTER, INTERVAL = "5s", "1s"
GOAL_SECONDS = 10.0
RUNS = 10
RUN_SECONDS = 120.0
LOOK_SECONDS = 0.05
SEED = 24

_LISTENING = re.compile(r"listening on (http://\S+)")
_REPORTED = re.compile(r'^rankscope_finding_active\{[^}]*kind="hang"[^}]*\} 1', re.MULTILINE)
_LAST_STEP = re.compile(r"^rankscope_last_step_timestamp_seconds\{[^}]*\} (\S+)", re.MULTILINE)


def measure(runs: int = RUNS) -> list[float | None]:
    """Return for each run the seconds until the report, None if there was none."""
    draw = random.Random(SEED)  # noqa: S311 - not a secret
    return [_run(draw.randrange(RANKS)) for _ in range(runs)]


def _run(rank: int) -> float | None:
    with tempfile.TemporaryDirectory(prefix="rankscope-notice-") as name:
        folder = Path(name)
        (folder / "rings").mkdir()
        with (
            agents_over([folder]) as (agent,),
            _watch(agent, folder) as watch,
            hanging_job(folder, rank),
        ):
            deadline = time.monotonic() + RUN_SECONDS
            while time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
                if _REPORTED.search(_page(watch)):
                    reported = time.time()
                    return reported - max(map(float, _LAST_STEP.findall(_page(f"{agent}/metrics"))))
    return None


def _page(url: str) -> str:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - of this machine
        return str(answer.read().decode())


@contextlib.contextmanager
def _watch(agent: str, folder: Path) -> Iterator[str]:
    """Run a watch; yield the address of its page."""
    flags = [f"--agent={agent}", f"--hang-after={HANG_AFTER}", f"--interval={INTERVAL}"]
    command = [sys.executable, "-m", "rankscope_analyzers", "watch", *flags]
    with (folder / "watch.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--web.listen-address=127.0.0.1:0"], stderr=log, env=environment()
        )
    try:
        while process.poll() is None:
            if found := _LISTENING.search((folder / "watch.log").read_text()):
                yield found[1]
                return
            time.sleep(LOOK_SECONDS)
        raise RuntimeError(f"the watch ended: {(folder / 'watch.log').read_text()}")
    finally:
        process.kill()
        process.wait()


def report(seconds: Sequence[float | None]) -> str:
    """Return how many were reported within the goal, and how long it took."""
    reported = sorted(one for one in seconds if one is not None)
    within = sum(one <= GOAL_SECONDS for one in reported)
    times = f", after {reported[0]:.1f} to {reported[-1]:.1f} s" if reported else ""
    return (
        f"rankscope watch --hang-after {HANG_AFTER} --interval {INTERVAL}: reported within"
        f" {GOAL_SECONDS:.0f} s of the last step in {within} of {len(seconds)} runs{times}"
    )
