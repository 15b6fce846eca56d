"""Jobs of the demo whose process is forked from one that has imported torch already."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.running_jobs.launch import send

from probe_jobs.nurseries import Nursery
from rankscope_analyzers.demo import run as demo


class DemoJob:
    """A job that a nursery forked; asked as `subprocess.Popen` is."""

    def __init__(
        self, nursery: Nursery, command: list[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        variables = dict(environment.items() - os.environ.items()) | {"TMPDIR": str(log.parent)}
        self.nursery = nursery
        self.forked = nursery.start(command[1:], variables, log)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        (self.returncode,) = self.nursery.exit_codes(self.forked.pid)
        return self.returncode

    def kill(self) -> None:
        """End it with its ranks, which are in no group of their own."""
        if self.poll() is None:
            send([self.forked.pid], signal.SIGSTOP)  # it forks no more of them
            ranks = Path(f"/proc/{self.forked.pid}/task/{self.forked.pid}/children").read_text()
            send([self.forked.pid, *map(int, ranks.split())], signal.SIGKILL)
            self.nursery.end_of([self.forked])


def forked(nursery: Nursery) -> Any:
    """Return what stands in for `demo.process`: only a job is forked, not what else begins."""
    anew = demo.process

    @contextmanager
    def process(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[Any]:
        if Path(command[1]).name == "job.py":
            job = DemoJob(nursery, command, log, environment)
            try:
                yield job
            finally:
                job.kill()
        else:
            with anew(command, log, environment) as running:
                yield running

    return process
