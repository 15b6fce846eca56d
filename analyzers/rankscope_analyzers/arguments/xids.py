"""Options of `rankscope xids`."""

from __future__ import annotations

import argparse

from rankscope_analyzers.arguments import connection
from rankscope_analyzers.command import (
    add_output,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the errors come from and how far back."""
    connection.add_arguments(parser, prometheus=True)
    parser.add_argument("--job", metavar="ID", help="only incidents that affected this job")
    parser.add_argument(
        "--since", default="24h", metavar="AGE", help="how far back to look (default %(default)s)"
    )
    add_output(parser)
