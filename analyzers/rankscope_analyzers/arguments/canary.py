"""Options of `rankscope canary`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope_agent.contract import canary
from rankscope_analyzers.arguments.connection import add_entry
from rankscope_analyzers.arguments.http_address import http_address
from rankscope_analyzers.command import add_output

DEFAULT_WATCH = "http://127.0.0.1:9878"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which server to query, and whether to train here."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--watch",
        default=DEFAULT_WATCH,
        type=http_address,
        metavar="URL",
        help="address of the watch, or of several behind one name (default %(default)s)",
    )
    where.add_argument(
        "--prometheus",
        type=http_address,
        metavar="URL",
        help="query a Prometheus server that scrapes the watch instead",
    )
    add_entry(parser, "the watch or Prometheus")
    parser.add_argument(
        "--train",
        type=Path,
        metavar="RINGS",
        help="also run the test job on this machine; its probe writes to the directory RINGS,"
        " which an agent reads (default: the job runs elsewhere, as in the canary component)",
    )
    parser.add_argument(
        "--job",
        metavar="ID",
        help=f"name of the job (default: {canary.NAME} in the namespace of POD_NAMESPACE)",
    )
    parser.add_argument(
        "--patience",
        default="4m",
        metavar="AGE",
        help="how long to wait for the slow rank to be named (default %(default)s)",
    )
    add_output(parser)
