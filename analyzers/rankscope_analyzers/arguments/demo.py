"""Options of `rankscope demo`."""

from __future__ import annotations

import argparse

from rankscope_analyzers.command import add_output
from rankscope_analyzers.demo.faults import FAULTS

DEFAULT_FAULT = "slow-compute"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the demo injects."""
    parser.add_argument(
        "--fault",
        choices=sorted(FAULTS),
        help=f"what is wrong with the rank (default {DEFAULT_FAULT})",
    )
    parser.add_argument(
        "--rank", type=int, default=2, help="the rank at fault (default %(default)s)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--tour",
        action="store_true",
        help="show a healthy job, slow compute, slow input, a hang and a hot simulated GPU in"
        " turn; takes two to three minutes",
    )
    how.add_argument(
        "--stack",
        action="store_true",
        help="keep a job running with simulated GPUs, watch, Prometheus, Alertmanager and, if"
        " installed, Grafana, until Ctrl-C",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="with --stack: stop after that long"
    )
    add_output(parser)
