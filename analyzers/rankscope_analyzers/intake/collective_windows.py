"""Fetches windows of collectives from agents whose records lack sync time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Protocol
from urllib.parse import urlencode

import pandas as pd

from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import LARGE_AT_ONCE
from rankscope_analyzers.intake.step_history import lacks_sync

WINDOWS_SECONDS = 900.0
"""How far back windows of collectives are fetched at most: 8 ranks then have up to 100,000
collectives."""

COMPARED_PER_SECOND = 3000.0
"""Seconds of a node's windows that are fetched and compared per second: fifteen minutes of a
hundred nodes take half a minute."""

SHORTEST_WINDOWS_SECONDS = 60.0
"""Minimum length in seconds; a shorter time may hold no window: agents take one only as often as 1
% of a core allows."""

COMPARISON_SECONDS = 30.0
"""Seconds that comparing collectives may take if somebody waits for the answer."""

MAXIMUM_ANSWER_BYTES = 512 << 20
"""Eight full rings of 65,536 records are about 80 MB of JSON."""

STEPS_SECONDS = 60.0
"""Maximum duration of an agent's response about steps, and the same again for its windows of
collectives: 80 MB take a busy one some seconds to write."""


class Newest(Protocol):
    """Provides when the newest steps of agents began."""

    def newest(self, url: str) -> Mapping[Any, float]:
        """Return when the newest step of each rank of an agent began."""
        ...


class Distrust(Protocol):
    """Decides which ranks are not trusted."""

    def has(self, url: str, answer: Mapping[str, Any]) -> bool:
        """Return True if an agent's record is about such a rank."""
        ...


def length_of_windows(nodes: int, comparison_seconds: float) -> float:
    """Return how many seconds of each node's windows are compared.

    Args:
        nodes: how many have windows to compare.
        comparison_seconds: how long comparing those of all nodes may take.
    """
    return min(WINDOWS_SECONDS, COMPARED_PER_SECOND * comparison_seconds / max(1, nodes))


def unread(records: pd.DataFrame, nodes: int, length: float) -> Iterator[str]:
    """Report that collectives of a job were not compared, if they would have been informative."""
    if length < SHORTEST_WINDOWS_SECONDS and lacks_sync(records):
        yield (
            f"windows of collectives of {nodes} nodes, which are more than can be compared in time:"
            " rankscope diagnose --job looks at those of one job"
        )


def windows_by_job(
    blind: Sequence[Agent],
    job_id: str | None,
    oldest: float,
    length: float,
    known: Newest,
    distrusted: Distrust,
) -> Mapping[Any, list[Mapping[str, Any]]]:
    """Fetch windows of collectives of the agents whose records lack sync time.

    Args:
        blind: these agents.
        job_id: the job to query, None for all.
        oldest: Unix time of the oldest records that are wanted.
        length: seconds before an agent's newest step for which its windows are fetched.
        known: when the newest steps of agents began.
        distrusted: ranks whose windows are left out.
    """
    found: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    if length < SHORTEST_WINDOWS_SECONDS:
        return found

    def ask(agent: Agent) -> list[dict[str, Any]]:
        newest = max(known.newest(agent.url).values(), default=oldest)
        found = _windows(agent, job_id, max(oldest, newest - length))
        return [one for one in found if not distrusted.has(agent.url, one)]

    with ThreadPoolExecutor(LARGE_AT_ONCE) as pool:
        for window in chain.from_iterable(pool.map(ask, blind)):
            found[str(window.get("job_id"))].append(window)
    return found


def _windows(agent: Agent, job_id: str | None, since: float) -> list[dict[str, Any]]:
    """Fetch an agent's windows of collectives; none if that fails."""
    query = urlencode({"since": f"{since:.6f}", **({"job": job_id} if job_id else {})})
    try:
        path = f"/api/v1/collectives?{query}"
        answer = agent.json(path, MAXIMUM_ANSWER_BYTES, STEPS_SECONDS)
        return [window for window in answer["windows"] if isinstance(window, dict)]
    except (AgentError, KeyError, TypeError):
        return []  # older agents have no such page, and the records are more important
