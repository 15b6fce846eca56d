"""Processes that have imported torch and fork those of jobs: what tests see of `nursery.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from probe_jobs.running import JOBS, Outcome, environment, outcome
from rankscope_analyzers.demo.free_ports import free_port

NO_EXTENSIONS = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""The variable that keeps torch from loading what extends it, the probe among it."""

TRAINER_MODULES = (
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.trainer",
    "accelerate",
    "lightning.pytorch",
)
"""What the jobs of trainers import, most of which transformers puts off until it is asked for."""


@dataclass(frozen=True, slots=True)
class Forked:
    """A training process that a nursery forked."""

    pid: int
    out: Path
    err: Path


class Nursery:
    """A process that has imported torch and forks one child per training process.

    Args:
        folder: where it keeps what its children print.
        pid: its process id.
        orders: where it reads what to start.
        answers: where it writes process ids and exit codes.
    """

    def __init__(self, folder: Path, pid: int, orders: IO[str], answers: IO[str]) -> None:
        self.folder, self.pid, self.orders, self.answers = folder, pid, orders, answers
        self.runs = 0

    def close(self) -> None:
        """End the process, which waits for nothing but its orders."""
        self.orders.close()
        self.answers.close()

    def _ask(self, order: Mapping[str, object]) -> str:
        print(json.dumps(order), file=self.orders, flush=True)
        return self.answers.readline()

    def _new_folder(self) -> Path:
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        return folder

    def offspring(self, modules: Sequence[str], variables: Mapping[str, str | None]) -> Nursery:
        """Have a nursery forked that imports more, with further environment variables."""
        folder = self._new_folder()
        pipes = {name: folder / name for name in ("orders", "answers")}
        for path in pipes.values():
            os.mkfifo(path)
        order = {"offspring": modules, "environment": variables}
        pid = int(self._ask(order | {name: str(path) for name, path in pipes.items()}))
        return Nursery(folder, pid, pipes["orders"].open("w"), pipes["answers"].open())

    def start(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        output: Path | None = None,
        finalized: bool = False,
    ) -> Forked:
        """Start a script of this folder, or of another one, as one process.

        Args:
            command: the script and its arguments.
            variables: further environment variables.
            output: the file for all that it prints; two files of its own without it.
            finalized: whether its interpreter ends as any does, not just after its exit handlers.
        """
        out = err = output
        if out is None or err is None:
            folder = self._new_folder()
            out, err = folder / "out", folder / "err"
        order = {
            "command": [str(JOBS / command[0]), *command[1:]],
            "environment": variables,
            "out": str(out),
            "err": str(err),
            "finalized": finalized,
        }
        return Forked(int(self._ask(order)), out, err)

    def exit_codes(self, *pids: int) -> list[int | None]:
        """Return exit codes, None of a process that runs; negative: the signal that ended it."""
        codes: list[int | None] = json.loads(self._ask({"ended": pids, "wait": False}))
        return codes

    def end_of(self, forked: Sequence[Forked]) -> list[Outcome]:
        """Wait for processes, which end by themselves after some minutes."""
        pids = [one.pid for one in forked]
        codes = json.loads(self._ask({"ended": pids, "wait": True}))
        return [
            outcome(code, one.out.read_text(), one.err.read_text())
            for code, one in zip(codes, forked, strict=True)
        ]

    def run(
        self,
        ring_dir: Path,
        *command: str,
        ranks: int = 1,
        finalized: bool = False,
        **extra: str,
    ) -> list[Outcome]:
        """Run a job script, as this many ranks at once, to its end."""
        shared = {"RANKSCOPE_RING_DIR": str(ring_dir), **extra}
        if ranks > 1:
            shared |= together(ranks) | {"MEETING": f"file://{self._new_folder()}/meeting"}
        places = [
            {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
            for rank in range(ranks)
        ]
        started = [self.start(command, shared | place, finalized=finalized) for place in places]
        return self.end_of(started)


def together(ranks: int) -> dict[str, str]:
    """Return the variables by which ranks of one job on this machine find each other."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return {"WORLD_SIZE": str(ranks)} | meeting


class Nurseries:
    """The nurseries of one test process, made when first wanted, closed at a `with` block's end.

    The first imports torch without the probe; the others are forked from it.

    Args:
        folder: where they keep what their children print.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Nurseries:
        return self

    def __exit__(self, *_: object) -> None:
        made = vars(self)
        for name in ("trainers", "probed", "bare"):
            if name in made:
                made[name].close()
        if self.process:
            self.process.wait(30)

    @cached_property
    def bare(self) -> Nursery:
        """One whose processes have no probe unless they load it."""
        self.process = subprocess.Popen(
            [sys.executable, str(JOBS / "nursery.py")],
            env=environment(self.folder, {NO_EXTENSIONS: "0"}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return Nursery(self.folder, self.process.pid, self.process.stdin, self.process.stdout)

    @cached_property
    def probed(self) -> Nursery:
        """One whose processes have the probe, as a program has it that has just imported torch."""
        return self.bare.offspring((), {NO_EXTENSIONS: None})

    @cached_property
    def trainers(self) -> Nursery:
        """One with the probe that has imported the libraries with their own training loop."""
        modules = [name for name in TRAINER_MODULES if find_spec(name.partition(".")[0])]
        return self.probed.offspring(modules, {})
