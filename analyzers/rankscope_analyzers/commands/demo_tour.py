"""`rankscope demo --tour`: a healthy job, three that are not, and a hot GPU, in turn."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from rankscope_analyzers.arguments import gpus as gpu_options
from rankscope_analyzers.command import Parser
from rankscope_analyzers.commands import gpus
from rankscope_analyzers.demo import hang
from rankscope_analyzers.demo import run as demo

HOT_NODE = "h100x8:thermal"
"""What an agent simulates in the last stop: eight H100s, of which one is too hot."""

GPU_SECONDS = 6.0
"""Seconds for which the GPUs are watched: clocks differ from the first look on."""

NEXT = """
Next, for jobs on this machine:
  rankscope-agent --web.listen-address=localhost:9877
  rankscope diagnose --agent localhost:9877
For other machines, both need a token: --web.token-file FILE for the agent,
--token-file FILE for rankscope.\
"""
"""The last lines: an agent that other machines reach gives step records to no one without a
token."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One thing that is shown.

    Args:
        sentence: what the user is about to see.
        show: makes it happen and prints the result, given the console and the rank at fault.
    """

    sentence: str
    show: Callable[[Console, int], None]


def _job(fault: str, console: Console, rank: int) -> None:
    demo.show(console, demo.run(fault, rank, console))


def _hang(console: Console, rank: int) -> None:
    hang.show(console, hang.run(rank, console), rank)


def _hot_gpu(console: Console, _rank: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="rankscope-demo-") as folder,
        demo.agent(Path(folder), f"--simulate={HOT_NODE}") as url,
    ):
        console.print(f"This is `rankscope gpus --agent {url.removeprefix('http://')} --one-job`:")
        parser = Parser("rankscope gpus")
        gpu_options.add_arguments(parser)
        flags = [f"--agent={url}", "--one-job", f"--seconds={GPU_SECONDS}"]
        options = parser.parse_args(flags)
        gpus.run(argparse.Namespace(**vars(options) | {"no_color": console.no_color}))


STOPS = (
    Stop(
        "A healthy job: no rank delays the others, and the verdict says so.",
        partial(_job, "none"),
    ),
    Stop(
        "One rank computes longer. All ranks' steps take equally long; their parts do not.",
        partial(_job, "slow-compute"),
    ),
    Stop("One rank waits for its input.", partial(_job, "slow-data")),
    Stop("One rank never enters a collective, and no further step ends.", _hang),
    Stop("One GPU of a node is too hot. The node is simulated, so no GPU is needed.", _hot_gpu),
)


def run(rank: int, console: Console) -> None:
    """Show all stops.

    Args:
        rank: the rank at fault in the jobs.
        console: where everything is printed.

    Raises:
        rankscope_analyzers.demo.run.DemoError: PyTorch is missing, the rank does not exist, or a
            job or an agent did not run.
    """
    demo.require(rank)
    for number, stop in enumerate(STOPS, 1):
        console.print(f"\n[bold]{number} of {len(STOPS)}. {stop.sentence}[/bold]\n")
        stop.show(console, rank)
    console.print(NEXT)
