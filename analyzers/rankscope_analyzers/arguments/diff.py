"""Options of `rankscope diff`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope_analyzers.command import add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two records."""
    parser.add_argument("before", type=Path, metavar="A", help="record of the earlier run")
    parser.add_argument("after", type=Path, metavar="B", help="record of the later run")
    add_output(parser)
