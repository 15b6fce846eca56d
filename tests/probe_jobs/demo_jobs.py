"""Jobs of the demo whose process is forked from one that has imported torch already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probe_jobs.nurseries import Nursery
from rankscope_analyzers.demo import run as demo


class DemoJob:
    """A job that a nursery forked; asked as `subprocess.Popen` is."""

    def __init__(
        self, nursery: Nursery, command: list[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        variables = dict(environment.items() - os.environ.items())
        self.nursery = nursery
        self.forked = nursery.start(command[1:], variables, log)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        (self.returncode,) = self.nursery.exit_codes(self.forked.pid)
        return self.returncode


def forked(nursery: Nursery) -> Any:
    """Return what stands in for `demo.process`: a job is forked, all else begins as it does there.

    A job is not ended by the end of its block: it ends by itself.
    """
    anew = demo.process

    @contextmanager
    def process(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[Any]:
        if Path(command[1]).name == "job.py":
            yield DemoJob(nursery, command, log, environment)
        else:
            with anew(command, log, environment) as running:
                yield running

    return process
