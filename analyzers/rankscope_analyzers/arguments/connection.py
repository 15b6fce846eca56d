"""The flags that select agents or Prometheus and the credentials to use.

Every command that asks agents or Prometheus takes them from here, so that a user who found out how
to ask an agent for one thing knows it for all.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_arguments(
    parser: argparse.ArgumentParser,
    prometheus: bool = False,
    default: str = "",
    *,
    required: bool = True,
    namespace: str = "--namespace",
) -> Any:
    """Declare whom to ask: agents by address, those of a cluster, or Prometheus.

    Args:
        parser: of the command.
        prometheus: whether a Prometheus server can tell what the command needs.
        default: address of the agent that is asked without any flag, empty for none.
        required: whether a command without a default must be told whom to ask.
        namespace: option for the agents' namespace, where a command has another use for the name.

    Returns:
        The group of which one is chosen: a command may add to it.
    """
    where = parser.add_mutually_exclusive_group(required=required and not default)
    default_text = f", repeatable (default: {default})" if default else "; repeatable"
    where.add_argument(
        "--agent", action="append", metavar="URL", help=f"address of an agent{default_text}"
    )
    where.add_argument(
        "--cluster",
        action="store_true",
        help="all agents of the cluster that kubectl, or this pod, is configured for",
    )
    if prometheus:
        where.add_argument(
            "--prometheus", metavar="URL", help="a Prometheus server that scrapes the agents"
        )
    parser.add_argument(
        namespace,
        dest="namespace",
        metavar="NS",
        help="with --cluster: namespace of the agents (default: all)",
    )
    add_cluster_arguments(parser)
    add_entry(parser, "agents or Prometheus" if prometheus else "agents")
    return where


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which of the user's clusters is asked."""
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: the current one)"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file (default: the one that kubectl uses)"
    )


def add_entry(parser: argparse.ArgumentParser, target: str) -> None:
    """Declare what is shown to be let in.

    Args:
        parser: of the command.
        target: whom it is shown to, for the help.
    """
    for flag, text in (
        ("--token-file", f"bearer token for {target}"),
        ("--ca-file", "certificates that sign the server's, instead of the system's; means https"),
        ("--cert-file", "our certificate, where the server asks for one"),
        ("--key-file", "its key"),
    ):
        parser.add_argument(flag, type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--tls-server-name",
        default="",
        metavar="NAME",
        help="name in the server's certificate, if it differs from the host name",
    )
