"""Options of `rankscope jobs`."""

from __future__ import annotations

import argparse

from rankscope_analyzers.arguments import connection
from rankscope_analyzers.command import (
    add_output,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which agents to query, and whether to repeat."""
    connection.add_arguments(parser, prometheus=True)
    parser.add_argument(
        "--since",
        default="10m",
        metavar="AGE",
        help="how far back to look (default %(default)s)",
    )
    parser.add_argument(
        "--refresh",
        type=float,
        metavar="SECONDS",
        help="repeat at this interval until interrupted; at least 2",
    )
    add_output(parser)
