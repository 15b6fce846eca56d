"""`rankscope explain`: explains log files, checkpoints and datasets without an agent or metrics.

Only the chosen kind's module is imported: a large job's NCCL log must not wait for what kernel
logs need.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
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
        "which ranks hold up a collective, from PyTorch's timeout messages",
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


CHECKPOINT, DATASET = "checkpoint", "dataset"
DAY_SECONDS = 86400.0


class Explanation(Protocol):
    """What logs, checkpoints or datasets say, ready to be shown."""

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
    _add_dataset(kinds)


def _add_dataset(kinds: Any) -> None:
    purpose = "which shards of a dataset differ from its manifest, and which a bad loss came from"
    command = kinds.add_parser(DATASET, help=purpose, description=purpose)
    command.add_argument(
        "manifest",
        metavar="MANIFEST",
        type=Path,
        help="shards with sizes and checksums: JSON, an index of Streaming or WebDataset, or what"
        " sha256sum prints",
    )
    command.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        help="that paths of the manifest are below; by default that of the manifest",
    )
    command.add_argument(
        "--read",
        metavar="CRC32,...",
        type=_checksums_of_names,
        help="read and compare the shards whose names have these CRC-32s, as a finding gives them",
    )
    command.add_argument(
        "--deep", action="store_true", help="read all shards and compare their checksums"
    )
    add_output(command)


def _checksums_of_names(text: str) -> Sequence[int]:
    """Return the CRC-32s that are written in hexadecimal digits.

    Raises:
        argparse.ArgumentTypeError: one is none.
    """
    words = text.split(",")
    if not all(re.fullmatch("[0-9a-fA-F]{8}", word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} are no CRC-32s of eight digits each")
    return [int(word, 16) for word in words]


def _add_checkpoint(kinds: Any) -> None:
    purpose = "which checkpoint is the last good one, and what is wrong with the others"
    command = kinds.add_parser(CHECKPOINT, help=purpose, description=purpose)
    command.add_argument(
        "directory", metavar="DIR", type=Path, help="a checkpoint, or a directory of checkpoints"
    )
    command.add_argument(
        "--deep",
        action="store_true",
        help="read all data and verify the checksums that the format has",
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
        help="seconds for which a save blocks training, to recommend an interval",
    )
    command.add_argument(
        "--failures-per-day",
        metavar="N",
        type=float,
        help="failures of the whole job per day, to recommend an interval",
    )
    add_output(command)


def run(options: argparse.Namespace) -> int:
    """Print what the logs say.

    Raises:
        LogError: a file cannot be read.
        InputError: a directory cannot be listed, or a rate is none.
    """
    explain = {CHECKPOINT: _of_checkpoints, DATASET: _of_dataset}.get(options.kind, _of_logs)
    explanation = explain(options)
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


def _of_dataset(options: argparse.Namespace) -> Explanation:
    datasets = import_module("rankscope_analyzers.datasets.explanation")
    file = options.manifest
    root = options.root or file.parent
    try:
        return cast(
            "Explanation", datasets.explain(file, root, names=options.read, deep=options.deep)
        )
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None


def _digests(file: Path | None) -> Mapping[str, str] | None:
    """Return a list of checksums, None for no list."""
    if file is None:
        return None
    digest_list = import_module("rankscope_analyzers.checkpoints.digest_list")
    try:
        return cast("Mapping[str, str]", digest_list.read(file.read_text(errors="replace")))
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
