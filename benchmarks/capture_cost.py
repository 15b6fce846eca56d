"""The cost of a capture for a healthy job: steps of a real gloo job with and without one.

Each window with an action lies between two windows without one; its loss is the mean of their steps
minus its own, so that load on the machine, which changes more slowly, affects all three. The action
is drawn at random in each round: nothing, which shows the effect of chance; the agents' responses,
requested by a process that is usually on another machine; and the whole command on the job's own
machine, including its own CPU time.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents import agents_over
from benchmarks.commands import environment
from benchmarks.hangs import running_job

from rankscope_analyzers.captures.evidence import EvidenceReader
from rankscope_analyzers.intake.agent_client import Agent

WINDOW_SECONDS = 6.0
"""Seconds; the command takes four to five on an idle machine."""

ROUNDS = 12
READY_STEPS = 200
SEED = 24
NOTHING, ANSWERS, COMMAND = "nothing", "answers", "command"
WHAT: Mapping[str, str] = {
    NOTHING: "nothing is done",
    ANSWERS: "agents answer a capture",
    COMMAND: "rankscope capture runs on the same machine",
}


@dataclass(frozen=True, slots=True)
class Window:
    """The number of steps that rank 0 ended in one window; `lost` compared with its neighbours."""

    done: str
    steps: int
    lost: float


def measure(rounds: int = ROUNDS) -> list[Window]:
    """Run a job and alternate the actions."""
    draw = random.Random(SEED)  # noqa: S311 - not a secret
    with tempfile.TemporaryDirectory(prefix="rankscope-capture-") as name:
        folder = Path(name)
        (folder / "rings").mkdir()
        with agents_over([folder], "--collector.interval=1") as (url,), running_job(folder):
            while _steps(url, 0.0) < READY_STEPS:
                time.sleep(1.0)
            do = _doings(url, folder)
            found, before = [], _window(url, do[NOTHING])
            for _ in range(rounds):
                for done in draw.sample(list(WHAT), len(WHAT)):
                    during, after = _window(url, do[done]), _window(url, do[NOTHING])
                    found.append(Window(done, during, (before + after) / 2 - during))
                    before = after
            return found


def _doings(url: str, folder: Path) -> Mapping[str, Callable[[], None]]:
    def answers() -> None:
        reader = EvidenceReader([Agent(url)], folder.name)
        reader.first()
        reader.rest()

    def command() -> None:
        made = folder / "capture.tar.gz"
        made.unlink(missing_ok=True)
        asked = ["capture", "--agent", url, "--job", folder.name, str(made)]
        run = [sys.executable, "-m", "rankscope_analyzers", *asked]
        subprocess.run(run, env=environment(), stdout=subprocess.DEVNULL, check=True)

    return {NOTHING: lambda: None, ANSWERS: answers, COMMAND: command}


def _window(url: str, do: Callable[[], None]) -> int:
    """Return how many steps end during an action and until the end of the window."""
    began = time.time()
    do()
    left = began + WINDOW_SECONDS - time.time()
    time.sleep(max(0.0, left))
    # An action that outlasts a window, on a busy machine, does not count for more steps.
    return round(_steps(url, began) * WINDOW_SECONDS / (WINDOW_SECONDS - min(0.0, left)))


def _steps(url: str, since: float) -> int:
    with urllib.request.urlopen(f"{url}/api/v1/steps?since={since}") as answer:  # noqa: S310
        found = json.load(answer)
    rank = found["columns"].index("rank")
    return sum(row[rank] == 0 for row in found["rows"])


def report(windows: Sequence[Window]) -> str:
    """Return the cost of a capture in the job's own steps."""
    usual = statistics.median(one.steps for one in windows if one.done == NOTHING)
    lines = [
        f"{usual:.0f} steps in {WINDOW_SECONDS:.0f} s ({WINDOW_SECONDS / usual * 1e3:.1f} ms each);"
        " steps lost in the median window, and where that lies by chance (95 %)"
    ]
    for done, words in WHAT.items():
        lost = sorted(one.lost for one in windows if one.done == done)
        low, high = _interval(lost)
        lines.append(
            f"{words}: {statistics.median(lost):.1f} ({low:.1f} to {high:.1f}), {len(lost)} windows"
        )
    return "\n".join(lines)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median of sorted values, by a sign test."""
    away = 0.98 * math.sqrt(len(values))
    low = max(0, math.floor(len(values) / 2 - away))
    return values[low], values[len(values) - 1 - low]
