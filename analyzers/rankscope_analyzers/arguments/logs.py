"""Options of `rankscope logs`."""

from __future__ import annotations

import argparse

from rankscope_analyzers.arguments import connection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare whose logs, from where and what of them."""
    parser.add_argument(
        "job", nargs="?", metavar="JOB", help="namespace/name of a job in the cluster"
    )
    parser.add_argument(
        "--from",
        dest="paths",
        action="append",
        metavar="PATH",
        help="log file or directory of log files, instead of the cluster; repeatable",
    )
    parser.add_argument(
        "--errors",
        action="store_true",
        help="only errors, by attempt, earliest first",
    )
    parser.add_argument("--since", metavar="AGE", help="how far back to read the cluster's logs")
    parser.add_argument(
        "--tail",
        type=int,
        metavar="LINES",
        help="only the last lines of each container in the cluster",
    )
    parser.add_argument("--json", action="store_true", help="with --errors: print one JSON object")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="read the cluster's logs, as is done without --from anyway",
    )
    connection.add_cluster_arguments(parser)
