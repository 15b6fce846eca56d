"""Pages of many agents, read twice: counters have to move before they say anything."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rankscope_agent.metrics import agent as metrics
from rankscope_agent.model import Metric
from rankscope_analyzers.agent_client import Agent, AgentError
from rankscope_analyzers.environment_skew import RankEnvironment
from rankscope_analyzers.observed import Observed, Page, from_pages

POOL_SIZE = 64
"""Agents asked at once. 2,048 agents of which a hundred are dead take two rounds of time-outs."""

LOOK_SECONDS = 3.0
"""Time between the two looks: agents read their sources every second."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at agents.

    Args:
        pages: of those that answered.
        agents: the same agents by the node that they speak for.
        failures: a sentence for each of the others.
        unobserved: why collectors give nothing, by node and collector.
    """

    pages: tuple[Page, ...]
    agents: Mapping[str, Agent]
    failures: tuple[str, ...]
    unobserved: Mapping[str, Mapping[str, str]]


def look(agents: Sequence[Agent]) -> Look:
    """Ask every agent for its page; those that give none are named."""
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        answers = list(pool.map(_answer, agents))
    found = [answer for answer in answers if not isinstance(answer, str)]
    twice = sorted(_twice([page.node for page, _, _ in found]))
    failures = [answer for answer in answers if isinstance(answer, str)]
    if twice:
        failures.append(f"more than one agent speaks for {', '.join(twice)}")
    return Look(
        pages=tuple(page for page, _, _ in found),
        agents={page.node: agent for page, agent, _ in found},
        failures=tuple(failures),
        unobserved={page.node: health for page, _, health in found},
    )


def _twice(nodes: Sequence[str]) -> set[str]:
    return {node for node in nodes if nodes.count(node) > 1}


def _answer(agent: Agent) -> tuple[Page, Agent, Mapping[str, str]] | str:
    try:
        health = agent.json("/healthz")
        text = agent.text("/metrics")
    except AgentError as error:
        return str(error)
    lacking = health.get("unobserved")
    reasons = {str(k): str(v) for k, v in lacking.items()} if isinstance(lacking, dict) else {}
    return Page(str(health.get("node", agent.url)), time.time(), text), agent, reasons


def again(first: Look, started: float) -> Look:
    """Look a second time at the agents that answered, when enough time has passed.

    Args:
        first: the first look.
        started: `time.monotonic()` at its end.
    """
    time.sleep(max(0.0, started + LOOK_SECONDS - time.monotonic()))
    return look(list(first.agents.values()))


def observed(looks: Sequence[Look], reads: Sequence[Metric]) -> Observed:
    """Put looks together.

    A page is as old as what it shows: between looks as much time has passed as between the
    snapshots, by the node's own clock, not as between the answers.
    """
    pages = [page for one in looks for page in one.pages]
    late: dict[str, float] = {}
    for page in pages:
        taken = _taken(page)
        if taken is not None:
            late[page.node] = min(late.get(page.node, float("inf")), page.time - taken)
    timed = (
        page if (taken := _taken(page)) is None else replace(page, time=taken + late[page.node])
        for page in pages
    )
    return from_pages(timed, reads, "agents' pages")


def _taken(page: Page) -> float | None:
    """Return when a page's snapshot was taken, by its node's clock."""
    found = _SNAPSHOT.search(page.text)
    return float(found[1]) if found else None


_SNAPSHOT = re.compile(rf"^{metrics.SNAPSHOT_TIMESTAMP.name} ([0-9.e+]+)$", re.MULTILINE)


def environments(agents: Mapping[str, Agent], nodes: Sequence[str]) -> Iterator[RankEnvironment]:
    """Yield the transport variables of the ranks on these nodes, as far as agents know them."""
    known = [(node, agents[node]) for node in nodes if node in agents]
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        for node, rows in zip(
            (node for node, _ in known), pool.map(_ranks, (a for _, a in known)), strict=True
        ):
            for row in rows:
                environment = row.get("environment")
                rank = row.get("rank")
                if isinstance(environment, dict) and isinstance(rank, int):
                    named = {str(k): str(v) for k, v in environment.items()}
                    yield RankEnvironment(str(row.get("job_id")), rank, node, named)


def _ranks(agent: Agent) -> list[dict[str, object]]:
    try:
        rows = agent.json("/api/v1/pods").get("ranks")
    except AgentError:
        return []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
