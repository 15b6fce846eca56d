"""Options of `rankscope runbook`."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what it prints."""
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="name of an alert, class of a verdict such as gpu_compute, or a path that a verdict or"
        " JSON contains, such as docs/preflight.md#numa for one check (default: list the names)",
    )
