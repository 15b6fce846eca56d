"""Options of `rankscope preflight`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope_analyzers.arguments import connection, step_target
from rankscope_analyzers.arguments.config_option import add_config
from rankscope_analyzers.command import (
    add_output,
    positive_seconds,
)
from rankscope_analyzers.preflight.checks import (
    CHECKS,
    POD_CHECKS,
    POOL_CHECKS,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the manifests and what is known in addition."""
    parser.add_argument(
        "manifests",
        nargs="*",
        metavar="FILE",
        help="YAML or JSON files, or directories of them; - reads standard input",
    )
    parser.add_argument(
        "--namespace",
        dest="manifests_namespace",
        default="default",
        metavar="NS",
        help="namespace of objects without one (default: %(default)s)",
    )
    parser.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="NAMESPACE/NAME",
        help="a job in the cluster: its pods, or its object while it has none; repeatable",
    )
    connection.add_arguments(parser, required=False, namespace="--agents-namespace")
    _add_places(parser)
    parser.add_argument(
        "--since",
        default="7d",
        metavar="AGE",
        help="how long ago a GPU's error still counts (default %(default)s)",
    )
    parser.add_argument(
        "--checkpoint-path", metavar="PATH", help="where the job writes checkpoints"
    )
    parser.add_argument(
        "--checkpoint-seconds",
        type=positive_seconds,
        metavar="SECONDS",
        help="duration of a checkpoint",
    )
    step_target.add_arguments(parser)
    add_config(parser, "ranges of the fabric, labels, projects of namespaces")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="CHECK",
        choices=[
            *(check.id for check in CHECKS),
            *(check.id for check in POOL_CHECKS),
            *(check.id for check in POD_CHECKS),
        ],
        help="skip a check; repeatable",
    )
    parser.add_argument("--strict", action="store_true", help="treat warnings as failures")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit XML report")
    add_output(parser)


def _add_places(parser: argparse.ArgumentParser) -> None:
    """Declare the nodes and pods that are examined without querying an agent."""
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="NODE",
        help="check only this node; repeatable",
    )
    parser.add_argument(
        "--this-node",
        action="store_true",
        help="check the local node by running the agent's collectors once",
    )
    parser.add_argument(
        "--page",
        action="append",
        default=[],
        metavar="FILE",
        help="output of rankscope-agent --once on a node; - reads standard input; repeatable",
    )
    parser.add_argument(
        "--this-pod",
        action="store_true",
        help="check the pod that the command runs in: shared and locked memory, interfaces,"
        " devices, variables",
    )
