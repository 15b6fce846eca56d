"""Options of `rankscope verify`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope_analyzers.arguments import connection
from rankscope_analyzers.command import (
    add_output,
    positive_seconds,
    share,
)
from rankscope_analyzers.verification.identifiers import ALWAYS, CRITERIA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the job, which agents to query, and what is expected of the job."""
    parser.add_argument("job", metavar="JOB", help="name of the job, as rankscope jobs shows it")
    connection.add_arguments(parser)
    parser.add_argument(
        "--since", default="1h", metavar="AGE", help="how far back to look (default %(default)s)"
    )
    parser.add_argument(
        "--wait",
        metavar="AGE",
        help="repeat until the job passes or fails, for at most this long, such as 15m",
    )
    _add_expectations(parser)
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="CRITERION",
        choices=CRITERIA,
        help="fail if this criterion does not apply; repeatable",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="CRITERION",
        choices=[name for name in CRITERIA if name not in ALWAYS],
        help="skip a criterion; repeatable",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit XML report")
    add_output(parser)


def _add_expectations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--world-size", type=_count, metavar="N", help="expected number of ranks")
    parser.add_argument(
        "--step-seconds", type=positive_seconds, metavar="SECONDS", help="expected step time"
    )
    parser.add_argument(
        "--utilization",
        type=share,
        default=0.3,
        metavar="SHARE",
        help="minimum share of time that each GPU must be busy (default %(default)s)",
    )
    parser.add_argument(
        "--transport",
        choices=("auto", "rdma", "gpudirect", "sockets"),
        default="auto",
        help="required transport between nodes; auto: RDMA if the nodes have it (the default)",
    )
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        metavar="DIR",
        help="where the job saves checkpoints: the newest one is verified",
    )
    parser.add_argument(
        "--nccl-log",
        nargs="+",
        default=[],
        metavar="LOG",
        help="NCCL logs of all ranks, instead of what agents read",
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a number of ranks, not {text!r}")
    return int(text)
