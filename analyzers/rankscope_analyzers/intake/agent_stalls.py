"""Queries agents for the state of ranks that end no steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlencode

from rankscope_agent.contract import stalls
from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.stalls import RankStall
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import LARGE_AT_ONCE
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.text.name_lists import ranks_named

ANSWER_SECONDS = 20.0
"""An agent queries ranks for six seconds at most, and then sends what it has."""

MAXIMUM_ANSWER_BYTES = 16 << 20
"""Bytes: a rank in 64 process groups with all that is kept of them has some 200 kB of JSON."""

QUIET_SECONDS = 2.0
"""Nodes all of whose ranks have ended a step more recently are not queried."""


@dataclass(frozen=True, slots=True)
class StandingRanks:
    """The states of ranks that end no steps, by job.

    Args:
        notes: whose states are unknown, as sentences about jobs.
    """

    by_job: Mapping[str, Sequence[RankStall]] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def from_agents(
    agents: Mapping[str, Agent], observed: Observed, job_id: str | None
) -> StandingRanks:
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
    quiet = _quiet_jobs(observed, job_id)
    asked = [(node, agents[node]) for node in sorted(quiet) if node in agents]
    found: dict[str, list[RankStall]] = defaultdict(list)
    notes: dict[str, list[str]] = defaultdict(list)
    lists: dict[tuple[int, ...], tuple[int, ...]] = {}
    with ThreadPoolExecutor(LARGE_AT_ONCE) as pool:
        answers = pool.map(lambda one: _asked(one[1], job_id), asked)
        for (node, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                for job in sorted(quiet[node]):
                    notes[job].append(f"where its ranks on node {node} stand is unknown: {answer}")
                continue
            left_out: dict[str, list[int]] = defaultdict(list)
            for stall in answer:
                if (node, stall.job_id, str(stall.rank)) in known:
                    found[stall.job_id].append(stalls.sharing(stall, lists))
                    if not stall.asked:
                        left_out[stall.job_id].append(stall.rank)
            for job, ranks in left_out.items():
                notes[job].append(_not_asked(node, ranks))
    return StandingRanks(found, notes)


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


def _not_asked(node: str, ranks: Sequence[int]) -> str:
    return (
        f"the agent on node {node} did not ask {ranks_named(ranks)} for collectives and stacks:"
        " too many ranks stand there, or do not answer"
    )


def _quiet_jobs(observed: Observed, job_id: str | None) -> Mapping[str, Collection[str]]:
    """Return the jobs with a live rank that has ended no step for some seconds, by its node."""
    found: dict[str, set[str]] = defaultdict(set)
    for series, quiet in _quiet_ranks(observed, job_id):
        if quiet > QUIET_SECONDS:
            found[series.node].add(series.labels.get("job_id", ""))
    return found


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


def _asked(agent: Agent, job_id: str | None) -> Sequence[RankStall] | str:
    """Return an agent's response, or why there is none."""
    query = f"?{urlencode({'job': job_id})}" if job_id else ""
    try:
        answer = agent.json(f"/api/v1/stalls{query}", MAXIMUM_ANSWER_BYTES, ANSWER_SECONDS)
        return stalls.readable(answer["stalls"])
    except AgentError as error:
        return str(error)
    except (LookupError, TypeError):
        return f"agent {agent.url} does not list them"
