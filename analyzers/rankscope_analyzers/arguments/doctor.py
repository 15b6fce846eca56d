"""Options of `rankscope doctor`."""

from __future__ import annotations

import argparse

from rankscope_agent.contract.address import AGENT_PORT
from rankscope_analyzers.arguments import connection
from rankscope_analyzers.command import add_output

LOCAL_AGENT = f"http://127.0.0.1:{AGENT_PORT}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the pod and where agents are."""
    parser.add_argument(
        "pod", nargs="?", metavar="POD", help="pod to examine: NAME or NAMESPACE/NAME"
    )
    connection.add_arguments(parser, default=LOCAL_AGENT)
    add_output(parser)
