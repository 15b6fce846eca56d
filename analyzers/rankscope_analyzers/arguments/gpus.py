"""Options of `rankscope gpus`."""

from __future__ import annotations

import argparse

from rankscope_analyzers.arguments import connection
from rankscope_analyzers.command import add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which agents are queried, and for how long."""
    connection.add_arguments(parser)
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--job", metavar="ID", help="only GPUs allocated to this job")
    whose.add_argument(
        "--one-job",
        action="store_true",
        help="treat all GPUs as one job, if the agents do not know their job",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="N",
        help="how long to watch (default %(default)s)",
    )
    add_output(parser)
