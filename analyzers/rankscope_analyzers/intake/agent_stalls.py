"""Queries agents for the state of ranks that end no steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from rankscope_agent.contract import stalls
from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.stalls import RankStall
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import LARGE_AT_ONCE
from rankscope_analyzers.intake.observed import Observed, Series

ANSWER_SECONDS = 20.0
"""Eight ranks that do not answer take an agent three seconds."""

MAXIMUM_ANSWER_BYTES = 16 << 20
"""Bytes: a rank in 64 process groups with all that is kept of them has some 200 kB of JSON."""

QUIET_SECONDS = 2.0
"""Nodes all of whose ranks have ended a step more recently are not queried."""

Stalls = Mapping[str, Sequence[RankStall]]
"""By job."""


def from_agents(agents: Mapping[str, Agent], observed: Observed, job_id: str | None) -> Stalls:
    """Return the state of ranks, of those that their node's page knows too.

    Args:
        agents: by the node that they report on.
        observed: their pages.
        job_id: the job to query, None for all.
    """
    known = {
        (series.node, series.labels.get("job_id", ""), series.labels.get("rank", ""))
        for series in observed.of(training.RANK_INFO)
    }
    asked = [(node, agents[node]) for node in _quiet_nodes(observed, job_id) if node in agents]
    found: dict[str, list[RankStall]] = defaultdict(list)
    lists: dict[tuple[int, ...], tuple[int, ...]] = {}
    with ThreadPoolExecutor(LARGE_AT_ONCE) as pool:
        answers = pool.map(lambda one: _asked(one[1], job_id), asked)
        for (node, _), answer in zip(asked, answers, strict=True):
            for stall in answer:
                if (node, stall.job_id, str(stall.rank)) in known:
                    found[stall.job_id].append(stalls.sharing(stall, lists))
    return found


def quiet_seconds(observed: Observed, job_id: str | None) -> float | None:
    """Return for how long no live rank has ended a step, by its node's clock.

    Args:
        observed: agents' pages.
        job_id: the job, None for all jobs.

    Returns:
        None if no live rank has ended one.
    """
    quiet = (seconds for _, seconds in _quiet_ranks(observed, job_id))
    return min(filter(math.isfinite, quiet), default=None)


def _quiet_nodes(observed: Observed, job_id: str | None) -> Sequence[str]:
    """Return the nodes on which a live rank has ended no step for some seconds."""
    ranks = _quiet_ranks(observed, job_id)
    return sorted({series.node for series, quiet in ranks if quiet > QUIET_SECONDS})


def _quiet_ranks(observed: Observed, job_id: str | None) -> Iterator[tuple[Series, float]]:
    """Yield the live ranks, and how long each has ended no step: infinity before its first."""
    made = {one.node: one.last for one in observed.of(agent_metrics.SNAPSHOT_TIMESTAMP)}
    ended = {_rank(one): one.last for one in observed.of(training.LAST_STEP_TIMESTAMP)}
    for series in observed.of(training.RANK_ALIVE):
        now = made.get(series.node, float(series.times[-1]))
        if series.last and job_id in (None, series.labels.get("job_id")):
            yield series, now - ended.get(_rank(series), -math.inf)


def _rank(series: Series) -> tuple[str, str, str]:
    return series.node, series.labels.get("job_id", ""), series.labels.get("rank", "")


def _asked(agent: Agent, job_id: str | None) -> list[RankStall]:
    """Return an agent's response; nothing from an older one, or if it cannot be read."""
    query = f"?{urlencode({'job': job_id})}" if job_id else ""
    try:
        answer = agent.json(f"/api/v1/stalls{query}", MAXIMUM_ANSWER_BYTES, ANSWER_SECONDS)
        return stalls.readable(answer["stalls"])
    except (AgentError, LookupError, TypeError):
        return []
