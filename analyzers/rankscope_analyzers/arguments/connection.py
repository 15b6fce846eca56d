"""The flags that select agents or Prometheus and the credentials to use.

Every command that queries agents or Prometheus takes them from here, so that they are the same for
all commands.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from rankscope_agent.contract.address import AGENT_PORT
from rankscope_analyzers.arguments.http_address import http_address


def add_arguments(
    parser: argparse.ArgumentParser,
    prometheus: bool = False,
    default: str = "",
    *,
    required: bool = True,
    namespace: str = "--namespace",
) -> Any:
    """Declare what to query: agents by address, those of a cluster, or Prometheus.

    Args:
        parser: of the command.
        prometheus: True if a Prometheus server has what the command needs.
        default: address of the agent that is queried without any flag, empty for none.
        required: True if one of them must be given if there is no default.
        namespace: option for the agents' namespace, if a command has another use for the name.

    Returns:
        The group of which one is chosen: a command may add to it.
    """
    group = parser.add_argument_group("what to ask")
    where = group.add_mutually_exclusive_group(required=required and not default)
    default_text = f", repeatable (default: {default})" if default else "; repeatable"
    where.add_argument(
        "--agent",
        action="append",
        type=_agent_address,
        metavar="URL",
        help=f"address of an agent, port {AGENT_PORT} unless it names one{default_text}",
    )
    where.add_argument(
        "--cluster",
        action="store_true",
        help="all agents of the cluster that kubectl, or this pod, is configured for",
    )
    if prometheus:
        where.add_argument(
            "--prometheus",
            type=http_address,
            metavar="URL",
            help="a Prometheus server that scrapes the agents",
        )
    group.add_argument(
        namespace,
        dest="namespace",
        metavar="NS",
        help="with --cluster: namespace of the agents (default: all)",
    )
    add_cluster_arguments(group)
    add_entry(parser, "agents or Prometheus" if prometheus else "agents")
    return where


def _agent_address(text: str) -> str:
    """Return the address of an agent; a host alone has the port that agents listen on."""
    is_host = re.fullmatch(r"[^:/\s]+|\[[^\]/\s]+\]", text)
    return f"{text}:{AGENT_PORT}" if is_host else http_address(text)


def add_cluster_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare which of the user's clusters to query."""
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: the current one)"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file (default: the one that kubectl uses)"
    )


def add_entry(parser: argparse.ArgumentParser, target: str) -> None:
    """Declare the credentials that the command presents.

    Args:
        parser: of the command.
        target: what it presents them to, for the help.
    """
    group = parser.add_argument_group("credentials")
    for flag, text in (
        ("--token-file", f"bearer token for {target}"),
        ("--ca-file", "CA certificates to trust instead of the system's; means https"),
        ("--cert-file", "client certificate, if the server requires one"),
        ("--key-file", "key of the client certificate"),
    ):
        group.add_argument(flag, type=Path, metavar="FILE", help=text)
    group.add_argument(
        "--tls-server-name",
        default="",
        metavar="NAME",
        help="name in the server's certificate, if it differs from the host name",
    )
