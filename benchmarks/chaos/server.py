"""A process of the chain that can be killed, stopped, limited and started again at its address."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import memory_mib

START_SECONDS = 90.0
STOP_SECONDS = 20.0
QUESTION_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Use:
    """Resources of a process.

    Args:
        resident_mib: resident memory, MiB.
        descriptors: open ones.
        threads: of the process.
    """

    resident_mib: float
    descriptors: int
    threads: int


def get(url: str, seconds: float = QUESTION_SECONDS) -> str:
    """Return the response of a URL.

    Raises:
        OSError: there is none, or not in time.
    """
    with urllib.request.urlopen(url, timeout=seconds) as answer:  # noqa: S310 - loopback
        return str(answer.read().decode())


def comes_true(holds: Callable[[], object], seconds: float) -> bool:
    """Wait until something holds; return True if it did in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            if holds():
                return True
        time.sleep(0.2)
    return False


class Server:
    """One process.

    Args:
        name: also the name of its log.
        command: with its arguments.
        folder: of its log.
        url: where it listens.
        ready: the path that answers 200 once it is ready.
        variables: its environment.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        url: str,
        ready: str,
        variables: Mapping[str, str],
    ) -> None:
        self.name, self.url = name, url
        self._command, self._ready = tuple(command), ready
        self.folder = folder
        self._log, self._variables = folder / f"{name}.log", dict(variables)
        self._process: subprocess.Popen[bytes] | None = None
        self.deaths = 0
        self.excuses = 0
        """Odd while it is excused; a different number afterwards means that it was excused in
        between."""

    @property
    def pid(self) -> int:
        """Return its process id.

        Raises:
            RuntimeError: it was not started.
        """
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self, variables: Mapping[str, str] | None = None) -> None:
        """Start it, with further environment variables; it is not awaited."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**self._variables, **(variables or {})},
            )

    def await_ready(self) -> None:
        """Wait until it answers.

        Raises:
            RuntimeError: it does not; with the end of its log.
        """
        if not comes_true(lambda: get(self.url + self._ready, 5), START_SECONDS):
            log = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.name} is not ready (exit code {self.exit_code}): {log}")

    def recover(self) -> None:
        """Wait until it answers; one that has ended by itself is counted, and restarted.

        Raises:
            RuntimeError: it does not answer.
        """
        if self.exit_code is not None:
            self.deaths += 1
            self.start()
        self.await_ready()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it like the kernel when memory is short."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS)

    def end(self) -> None:
        """End it if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @contextlib.contextmanager
    def excused(self) -> Iterator[None]:
        """Excuse missing responses until the block ends: it cannot answer."""
        self.excuses += 1
        try:
            yield
        finally:
            self.excuses += 1

    @contextlib.contextmanager
    def limited(self, kind: int, most: int) -> Iterator[None]:
        """Set one of its kernel limits until the block ends."""
        before = resource.prlimit(self.pid, kind)
        resource.prlimit(self.pid, kind, (most, before[1]))
        try:
            yield
        finally:
            if self.exit_code is None:
                resource.prlimit(self.pid, kind, before)

    def use(self) -> Use:
        """Return its present resources."""
        process = Path("/proc", str(self.pid))
        return Use(
            memory_mib(self.pid, "VmRSS"),
            len(list((process / "fd").iterdir())),
            len(list((process / "task").iterdir())),
        )
