"""Options of `rankscope diagnose`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import shtab

from rankscope_analyzers.arguments import connection, hang_age
from rankscope_analyzers.command import STANDARD_OUTPUT, add_output
from rankscope_analyzers.steps.trace_directories import directory

CORES = os.cpu_count() or 1


def _add_reports(parser: argparse.ArgumentParser) -> None:
    """Declare which files are written."""
    html = parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write the report as one HTML file"
    )
    markdown = parser.add_argument(
        "--markdown",
        type=Path,
        nargs="?",
        const=STANDARD_OUTPUT,
        metavar="FILE",
        help="also write an incident timeline for a postmortem; without FILE, print only that",
    )
    for file in (html, markdown):
        file.complete = shtab.FILE  # type: ignore[attr-defined]


def _add_verdicts(parser: argparse.ArgumentParser) -> None:
    """Declare where the verdicts are written and how many processes compute them."""
    parser.add_argument(
        "--verdicts",
        type=Path,
        metavar="OUT.json",
        help="write the verdicts on all --trace directories to this file",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help=f"worker processes for --verdicts (default: one per core, here {CORES})",
    )
    parser.add_argument(
        "--scheduler",
        metavar="URL",
        help="for --verdicts: tcp:// or tls:// address of a Dask cluster, whose workers judge in"
        " place of processes here; they need rankscope and must see the traces",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where records come from and how the verdict is printed."""
    where = connection.add_arguments(parser, prometheus=True)
    traces = where.add_argument(
        "--trace",
        nargs="+",
        action="extend",
        type=directory,
        metavar="DIR",
        help="directories of recorded traces, also at s3://, gs:// and az://",
    )
    profiles = where.add_argument(
        "--kineto",
        nargs="+",
        action="extend",
        type=Path,
        metavar="DIR",
        help="directories of PyTorch profiler traces, one per job, with a file per rank",
    )
    capture = where.add_argument(
        "--capture", type=Path, metavar="FILE", help="file written by rankscope capture"
    )
    capture.complete = shtab.FILE
    save: Any = parser.add_argument(
        "--save",
        type=Path,
        metavar="DIR",
        help="save the evidence to the new directory DIR; --trace DIR gives the same verdict",
    )
    for directories in (traces, profiles, save):
        directories.complete = shtab.DIRECTORY
    parser.add_argument("--job", metavar="ID", help="only this job")
    parser.add_argument(
        "--since",
        default="1h",
        metavar="AGE",
        help="how far back to ask agents and Prometheus (default %(default)s); traces and captures"
        " are read whole",
    )
    hang_age.add_argument(parser)
    _add_reports(parser)
    _add_verdicts(parser)
    add_output(parser)
