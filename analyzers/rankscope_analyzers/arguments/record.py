"""Options of `rankscope record`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope_analyzers.arguments import connection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the job's agents, the job, and the file."""
    connection.add_arguments(parser)
    parser.add_argument("--job", metavar="ID", help="the job to record, if there are several")
    parser.add_argument(
        "--since",
        default="1h",
        metavar="AGE",
        help="how far back to read steps (default %(default)s)",
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="file to write; - for standard output"
    )
