"""Jobs that a test starts without the seconds that each rank would take to import torch.

A process that has imported it with the probe forks them. What they do from then on, and what an
agent sees of them, is that of ranks that torchrun started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rankscope_analyzers.demo.probe_folder import probe_folder

LAUNCHER = Path(__file__).parent / "foreign_jobs" / "launcher.py"


def training_environment() -> dict[str, str]:
    """Return this process' environment with the probe alone on the path, one thread, loopback."""
    return {
        **os.environ,
        "PYTHONPATH": str(probe_folder()),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


class Launcher:
    """Forks jobs; close it after the last of them."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(LAUNCHER)],
            env=training_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process, which waits for nothing but its input."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def start(self, script: Path, ranks: int, environment: Mapping[str, str]) -> ForkedJob:
        """Start a script as this many ranks, in a session of their own."""
        order = {"script": str(script), "ranks": ranks, "environment": dict(environment)}
        pid = self.ask(order)
        assert pid is not None
        return ForkedJob(self, pid)

    def ask(self, order: Mapping[str, object]) -> int | None:
        """Give an order and return its answer, None for a job that runs."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)
        found: int | None = json.loads(self.process.stdout.readline())
        return found


class ForkedJob:
    """A job by the process that its ranks are children of, to be used as a `Popen` of torchrun."""

    def __init__(self, launcher: Launcher, pid: int) -> None:
        self.launcher = launcher
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.code is None:
            self.code = self.launcher.ask({"ended": self.pid})
        return self.code

    def wait(self, timeout: float) -> int:
        """Wait until it ends and return the exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(LAUNCHER), timeout)
            time.sleep(0.05)
        return code
