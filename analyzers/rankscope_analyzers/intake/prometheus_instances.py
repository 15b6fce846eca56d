"""Which scraped agents (instances) represent which nodes, and which of them to reject.

An agent that is replaced gets another address, as does one that claims another's name: the first
begins when the other ends, the second reports at the same time.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from rankscope_agent.contract.metrics import agent, pods, training
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError
from rankscope_analyzers.numeric.arrays import Booleans
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.text.name_lists import listed
from rankscope_analyzers.text.sanitize import name

LARGEST_WINDOW_SECONDS = 3600.0
"""How far back agents are searched: history from before that says nothing about what is wrong
now."""

STEP_SECONDS = 60.0

LINGERING_SECONDS = 300.0
"""How long Prometheus keeps returning the last value of a target that is gone, unless it was marked
stale (--query.lookback-delta)."""

Address = tuple[str, str]
"""Cluster and node; several clusters in one Prometheus may have nodes of the same name."""


@dataclass(frozen=True, slots=True)
class Instances:
    """The agents that Prometheus scrapes.

    Args:
        nodes: of each instance that is trusted.
        refused: the others.
        doubts: why, as sentences.
    """

    nodes: Mapping[str, str]
    refused: frozenset[str] = frozenset()
    doubts: Sequence[str] = field(default_factory=tuple)


def known(server: Prometheus, job_id: str | None, since: float, now: float) -> Instances:
    """Return the agents with a rank or GPU of a job, or of any.

    Args:
        server: to query.
        job_id: the job, None for all.
        since: Unix time before which nothing is requested.
        now: Unix time of the end.

    Raises:
        SourceError: the server cannot be queried.
    """
    try:
        addresses = _addresses(server, job_id, max(since, now - LARGEST_WINDOW_SECONDS), now)
        return _believed(addresses, server, now)
    except PrometheusError as error:
        raise SourceError(str(error)) from None


def _addresses(
    server: Prometheus, job_id: str | None, start: float, now: float
) -> Mapping[str, Address]:
    which = "" if job_id is None else "{job_id=" + json.dumps(job_id) + "}"
    length = max(1, int(now - start))
    found: dict[str, Address] = {}
    for metric in (training.RANK_INFO, pods.GPU_ALLOCATION_INFO):
        expression = f"last_over_time({metric.name}{which}[{length}s])"
        for labels, _ in server.instant(f"group by (cluster, instance, node) ({expression})", now):
            if labels.get("node"):
                found[labels.get("instance", "")] = (labels.get("cluster", ""), labels["node"])
    return found


def _believed(addresses: Mapping[str, Address], server: Prometheus, now: float) -> Instances:
    by_address: dict[Address, list[str]] = defaultdict(list)
    for instance, address in sorted(addresses.items()):
        by_address[address].append(instance)
    doubtful = {address: several for address, several in by_address.items() if len(several) > 1}
    seen = _seen(server, [one for several in doubtful.values() for one in several], now)
    refused: set[str] = set()
    doubts: list[str] = []
    for (_, node), several in sorted(doubtful.items()):
        together = _at_once(several, seen)
        if together:
            refused |= together
            sentence = f"{len(together)} agents say that they are of node {name(node)}"
            doubts.append(f"{sentence}, and none is believed: {listed(sorted(together))}")
    nodes = {one: node for one, (_, node) in addresses.items() if one not in refused}
    return Instances(nodes, frozenset(refused), tuple(doubts))


def _seen(server: Prometheus, instances: Sequence[str], now: float) -> Mapping[str, Booleans]:
    """Return the minutes of the last hour at which each of these instances was present."""
    if not instances:
        return {}
    # re.escape writes what RE2 reads; the selector's string has Go's escapes, like JSON's.
    wanted = json.dumps("|".join(re.escape(one) for one in instances))
    query = f"group by (instance) ({agent.BUILD_INFO.name}{{instance=~{wanted}}})"
    found = server.range(query, now - LARGEST_WINDOW_SECONDS, now, STEP_SECONDS)
    return {
        labels.get("instance", ""): np.isfinite(row)
        for labels, row in zip(found.labels, found.values, strict=True)
    }


def _at_once(several: Collection[str], seen: Mapping[str, Booleans]) -> frozenset[str]:
    """Return the instances that were present together for longer than a stale one lingers."""
    return frozenset(one for pair in _overlapping(several, seen) for one in pair)


def _overlapping(
    several: Collection[str], seen: Mapping[str, Booleans]
) -> Iterator[tuple[str, str]]:
    for one, other in combinations(several, 2):
        if one in seen and other in seen:
            minutes = int((seen[one] & seen[other]).sum())
            if minutes * STEP_SECONDS > LINGERING_SECONDS + STEP_SECONDS:
                yield one, other
