"""`rankscope explain`: explains log files and checkpoints without an agent or metrics.

Only the chosen kind's module is imported: a large job's NCCL log must not wait for what kernel
logs need.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from rankscope_analyzers.command import InputError, add_output, print_json
from rankscope_analyzers.intake.log_files import LogError
from rankscope_analyzers.text.plain_lines import write_lines

FAILURES: tuple[type[Exception], ...] = (LogError, InputError)

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


CHECKPOINT = "checkpoint"
DAY_SECONDS = 86400.0


class Explanation(Protocol):
    """What logs or checkpoints say, ready to be shown."""

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
    _add_checkpoint(kinds)


def _add_checkpoint(kinds: Any) -> None:
    purpose = "which checkpoint is the last good one, and what is wrong with the others"
    command = kinds.add_parser(CHECKPOINT, help=purpose, description=purpose)
    command.add_argument("directory", metavar="DIR", type=Path, help="of checkpoints, or one")
    command.add_argument(
        "--deep",
        action="store_true",
        help="read everything and compare the checksums that formats have",
    )
    command.add_argument(
        "--checksums",
        metavar="FILE",
        type=Path,
        help="compare files with a list that sha256sum wrote in DIR",
    )
    command.add_argument(
        "--write-seconds",
        metavar="S",
        type=float,
        help="how long training waits for a save, for the recommended interval",
    )
    command.add_argument(
        "--failures-per-day",
        metavar="N",
        type=float,
        help="of the whole job, for the recommended interval",
    )
    add_output(command)


def run(options: argparse.Namespace) -> int:
    """Print what the logs say.

    Raises:
        LogError: a file cannot be read.
        InputError: a directory cannot be listed, or a rate is none.
    """
    explanation = _of_checkpoints(options) if options.kind == CHECKPOINT else _of_logs(options)
    if options.json:
        print_json(explanation.as_object())
    else:
        write_lines(explanation.lines())
    return 0


def _of_logs(options: argparse.Namespace) -> Explanation:
    _, module, name = KINDS[options.kind]
    explain = getattr(import_module(f"rankscope_analyzers.logs.{module}"), name)
    return cast("Explanation", explain(options.files))


def _of_checkpoints(options: argparse.Namespace) -> Explanation:
    checkpoints = import_module("rankscope_analyzers.checkpoints.explanation")
    given = (options.write_seconds, options.failures_per_day)
    if any(rate is not None and not 0 < rate < 1e9 for rate in given) or given.count(None) == 1:
        raise InputError("--write-seconds and --failures-per-day go together, both above 0")
    rates = None
    if options.write_seconds is not None:
        rates = checkpoints.Rates(options.write_seconds, DAY_SECONDS / options.failures_per_day)
    try:
        digests = _digests(options.checksums)
        return cast(
            "Explanation",
            checkpoints.explain(options.directory, deep=options.deep, digests=digests, rates=rates),
        )
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None


def _digests(file: Path | None) -> Mapping[str, str] | None:
    """Return a list of checksums, None for no list."""
    if file is None:
        return None
    digest_list = import_module("rankscope_analyzers.checkpoints.digest_list")
    try:
        return cast("Mapping[str, str]", digest_list.read(file.read_text(errors="replace")))
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
