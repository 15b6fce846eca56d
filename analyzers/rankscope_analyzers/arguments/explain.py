"""Options of `rankscope explain`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope_analyzers.arguments import examples
from rankscope_analyzers.command import add_output

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
        "one cause and one action for a node's kernel log, from dmesg or the journal",
        "kernel_report",
        "KernelLogExplanation",
    ),
}
"""Every kind of log: its purpose, and the module of `logs` and the class that reads its files."""


FILES = {
    "nccl-log": "logs of one job",
    "watchdog-log": "logs of one job",
    "flight-recorder": "dumps of one job's ranks",
    "job-log": "logs of one job, or directories of them",
    "kernel-log": "logs of one node, oldest first",
}
"""The files of each kind."""

CHECKPOINT, DATASET = "checkpoint", "dataset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of logs and their files."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND", prog=parser.prog)
    for kind, (purpose, _, _) in KINDS.items():
        command = _add_kind(kinds, kind, purpose)
        command.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help=f"{FILES[kind]}, plain or .gz; - reads standard input",
        )
        add_output(command)
    _add_checkpoint(kinds)
    _add_dataset(kinds)


def _add_kind(kinds: Any, kind: str, purpose: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(
        kind,
        help=purpose,
        description=purpose,
        epilog=examples.epilog("explain", kind),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _add_dataset(kinds: Any) -> None:
    purpose = "the shards of a dataset that differ from its manifest, or that a bad loss read"
    command = _add_kind(kinds, DATASET, purpose)
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
        help="directory that the manifest's paths are relative to (default: that of the manifest)",
    )
    command.add_argument(
        "--read",
        metavar="CRC32,...",
        type=_checksums_of_names,
        help="read and compare only shards whose names have these CRC-32s, which a finding lists",
    )
    command.add_argument(
        "--deep", action="store_true", help="read all shards and compare their checksums"
    )
    add_output(command)


def _checksums_of_names(text: str) -> Sequence[int]:
    """Return the CRC-32s that are written in hexadecimal digits.

    Raises:
        argparse.ArgumentTypeError: one is invalid.
    """
    words = text.split(",")
    if not all(re.fullmatch("[0-9a-fA-F]{8}", word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} are no CRC-32s of eight digits each")
    return [int(word, 16) for word in words]


def _add_checkpoint(kinds: Any) -> None:
    purpose = "which checkpoint is the last good one, and what is wrong with the others"
    command = _add_kind(kinds, CHECKPOINT, purpose)
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
