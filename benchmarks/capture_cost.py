"""What a capture costs a healthy job: steps of a real gloo job while it is captured, and while not.

Windows with a capture and windows without take turns, so that the machine's load falls on both. The
agents' answers are asked for in this process, as whoever captures mostly sits on another machine.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents import agents_over
from benchmarks.hangs import running_job

from rankscope_analyzers.captures.evidence import EvidenceReader
from rankscope_analyzers.intake.agent_client import Agent

WINDOW_SECONDS = 3.0
READY_STEPS = 200


@dataclass(frozen=True, slots=True)
class Window:
    """The steps of rank 0 that ended in one window, in seconds."""

    captured: bool
    steps: tuple[float, ...]

    def lost(self, usual: float) -> float:
        """Return the seconds that its steps took beyond usual ones, in usual steps."""
        return sum(max(0.0, step - usual) for step in self.steps) / usual


def measure(windows: int = 20) -> list[Window]:
    """Run a job and take turns."""
    with tempfile.TemporaryDirectory(prefix="rankscope-capture-") as name:
        folder = Path(name)
        (folder / "rings").mkdir()
        with agents_over([folder], "--collector.interval=1") as (url,), running_job(folder):
            while len(_steps(url, 0.0)) < READY_STEPS:
                time.sleep(1.0)
            return [_window(url, folder.name, captured=n % 2 == 1) for n in range(2 * windows)]


def _window(url: str, job_id: str, *, captured: bool) -> Window:
    began = time.time()
    if captured:
        reader = EvidenceReader([Agent(url)], job_id)
        reader.first()
        reader.rest()
    time.sleep(max(0.0, began + WINDOW_SECONDS - time.time()))
    return Window(captured, tuple(_steps(url, began)))


def _steps(url: str, since: float) -> Sequence[float]:
    with urllib.request.urlopen(f"{url}/api/v1/steps?since={since}") as answer:  # noqa: S310
        found = json.load(answer)
    places = {name: number for number, name in enumerate(found["columns"])}
    return [row[places["step_seconds"]] for row in found["rows"] if row[places["rank"]] == 0]


def report(windows: Sequence[Window]) -> str:
    """Return what a capture cost, in usual steps."""
    plain = [window for window in windows if not window.captured]
    usual = statistics.median(step for window in plain for step in window.steps)
    lines = [f"usual step {usual * 1e3:.1f} ms, {len(plain)} windows each"]
    for captured in (False, True):
        mine = [window for window in windows if window.captured is captured]
        median = statistics.median(step for window in mine for step in window.steps)
        lost = sorted(window.lost(usual) for window in mine)
        longest = max(step for window in mine for step in window.steps)
        lines.append(
            f"{'captured' if captured else 'left alone'}: median step {median * 1e3:.2f} ms,"
            f" longest {longest * 1e3:.0f} ms, beyond usual steps {statistics.median(lost):.1f}"
            f" steps in the median window, {lost[-1]:.1f} at most"
        )
    return "\n".join(lines)
