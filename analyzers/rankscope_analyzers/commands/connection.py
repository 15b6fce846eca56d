"""The flags that select agents or Prometheus and the credentials to use.

Every command that asks agents or Prometheus takes them from here, so that a user who found out how
to ask an agent for one thing knows it for all.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.cluster import (
    ClusterAccess,
    ClusterError,
    NodeAgents,
    trusted_agents,
)
from rankscope_analyzers.intake.credentials import CredentialsError, Entry, add_entry, entry_of

FAILURES: tuple[type[Exception], ...] = (AgentError, ClusterError, CredentialsError)
"""What comes of wrong addresses, clusters and credentials: to be among a command's own."""


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


def cluster_access(options: argparse.Namespace) -> ClusterAccess:
    """Return which cluster the options name."""
    return ClusterAccess(options.context or "", options.kubeconfig or "")


@dataclass(frozen=True, slots=True)
class Targets:
    """Agents to ask.

    Args:
        urls: their addresses.
        entry: what is shown to them.
        cluster: what an API server tells of them, None where none was asked.
    """

    urls: tuple[str, ...]
    entry: Entry
    cluster: NodeAgents | None = None

    def agents(self) -> list[Agent]:
        """Return them, each with the node that an API server says it is on."""
        nodes = {} if self.cluster is None else self.cluster.nodes
        return [Agent(url, self.entry, nodes.get(url, "")) for url in self.urls]


def chosen_targets(options: argparse.Namespace, default: str = "") -> Targets:
    """Return the agents that the options name.

    Args:
        options: of the command.
        default: address of the agent that is asked without any flag.

    Raises:
        CredentialsError: a certificate without its key, or the other way round.
        ClusterError: the cluster cannot be asked for its agents.
    """
    entry = entry_of(options)
    if not options.cluster:
        return Targets(tuple(options.agent or [default]), entry)
    found = trusted_agents(options.namespace, entry, access=cluster_access(options))
    return Targets(tuple(found.values()), entry, found)
