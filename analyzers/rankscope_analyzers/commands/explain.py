"""`rankscope explain`: explains log files without an agent or metrics.

Only the chosen kind's module is imported: a large job's NCCL log must not wait for what kernel
logs need.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from rankscope_analyzers.command import add_output, print_json
from rankscope_analyzers.intake.log_files import LogError
from rankscope_analyzers.text.plain_lines import write_lines

FAILURES: tuple[type[Exception], ...] = (LogError,)

KINDS: Mapping[str, tuple[str, str, str]] = {
    "nccl-log": (
        "network, GPUDirect, initialisation and warnings, from NCCL_DEBUG=INFO logs",
        "nccl_explanation",
        "NcclExplanation",
    ),
    "watchdog-log": (
        "who holds a collective up, from PyTorch's timeout messages",
        "nccl_explanation",
        "WatchdogExplanation",
    ),
    "flight-recorder": (
        "which rank did not enter which collective, from PyTorch's Flight Recorder dumps",
        "flight_explanation",
        "FlightExplanation",
    ),
    "job-log": (
        "which rank of a failed attempt failed first, and why, from any logs of the job",
        "failure_report",
        "JobLogExplanation",
    ),
    "kernel-log": (
        "one cause and one action for what a node's kernel reports, from dmesg or the journal",
        "kernel_report",
        "KernelLogExplanation",
    ),
}
"""Every kind of log: what it tells, and the module of `logs` and the class that read its files."""


class Explanation(Protocol):
    """What logs say, ready to be shown."""

    def as_object(self) -> Mapping[str, Any]:
        """Return it as JSON-ready values."""
        ...

    def lines(self) -> Iterator[str]:
        """Yield it for a person."""
        ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of logs and their files."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, (purpose, _, _) in KINDS.items():
        command = kinds.add_parser(kind, help=purpose, description=purpose)
        command.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help="logs of one job (kernel-log: of one node), plain or .gz; - reads standard input",
        )
        add_output(command)


def run(options: argparse.Namespace) -> int:
    """Print what the logs say.

    Raises:
        LogError: a file cannot be read.
    """
    _, module, name = KINDS[options.kind]
    explain = getattr(import_module(f"rankscope_analyzers.logs.{module}"), name)
    explanation = cast("Explanation", explain(options.files))
    if options.json:
        print_json(explanation.as_object())
    else:
        write_lines(explanation.lines())
    return 0
