"""Options of `rankscope capture`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import shtab

from rankscope_analyzers.arguments import connection, hang_age


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which agents to query, which job, and the file to write."""
    connection.add_arguments(parser)
    parser.add_argument("--job", metavar="ID", required=True, help="name of the job")
    output: Any = parser.add_argument(
        "file", type=Path, metavar="FILE", help="file to create, such as capture.tar.gz"
    )
    output.complete = shtab.FILE
    parser.add_argument(
        "--since", default="1h", metavar="AGE", help="how far back to look (default %(default)s)"
    )
    parser.add_argument(
        "--kept",
        action="store_true",
        help="use the evidence that agents saved when the job last hung instead of its current"
        " state; works even if no agent has the job any more",
    )
    hang_age.add_argument(parser)
