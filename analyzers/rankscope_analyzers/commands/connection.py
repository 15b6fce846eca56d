"""The flags that select agents or Prometheus and the credentials to use.

Every command that queries agents or Prometheus takes them from here, so that they are the same for
all commands.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.cluster import (
    NO_AGENT,
    ClusterAccess,
    ClusterError,
    NodeAgents,
    trusted_agents,
)
from rankscope_analyzers.intake.credentials import CredentialsError, Entry, entry_of
from rankscope_analyzers.intake.page_history import Page

FAILURES: tuple[type[Exception], ...] = (AgentError, ClusterError, CredentialsError)
"""Errors from wrong addresses, clusters and credentials: to be included in a command's own."""


def cluster_access(options: argparse.Namespace) -> ClusterAccess:
    """Return the cluster that the options select."""
    return ClusterAccess(options.context or "", options.kubeconfig or "")


@dataclass(frozen=True, slots=True)
class Targets:
    """Agents to query.

    Args:
        urls: their addresses.
        entry: credentials.
        cluster: the agents according to an API server, None if none was queried.
    """

    urls: tuple[str, ...]
    entry: Entry
    cluster: NodeAgents | None = None

    @property
    def named(self) -> str:
        """Return the only agent's address, or how many there are, for a sentence."""
        return f"{len(self.urls)} agents" if len(self.urls) != 1 else f"agent {self.urls[0]}"

    def agents(self) -> list[Agent]:
        """Return them, each with its node according to the API server."""
        nodes = {} if self.cluster is None else self.cluster.nodes
        return [Agent(url, self.entry, nodes.get(url, "")) for url in self.urls]

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Return sentences about nodes whose agent is unknown, or that there is no agent."""
        if self.cluster is None:
            return ()
        return self.cluster.doubts or (() if self.urls else (NO_AGENT,))

    def pages(self) -> tuple[list[Page], list[str]]:
        """Return the agents' pages, and a sentence for each node whose agent gives none."""
        found, silent = agent_pages.pages(self.agents())
        return found, [*silent, *self.unlisted]


def chosen_targets(options: argparse.Namespace, default: str = "") -> Targets:
    """Return the agents that the options select.

    Args:
        options: of the command.
        default: address of the agent that is queried without any flag.

    Raises:
        CredentialsError: a certificate without its key, or the other way round.
        ClusterError: the cluster cannot be queried for its agents.
    """
    entry = entry_of(options)
    if not options.cluster:
        return Targets(tuple(options.agent or [default]), entry)
    found = trusted_agents(options.namespace, entry, access=cluster_access(options))
    return Targets(tuple(found.values()), entry, found)
