"""Asks many agents for their pages at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.environment_skew import RankEnvironment, of_listing
from rankscope_analyzers.intake.page_history import Page

POOL_SIZE = 64
"""Agents asked at once. 2,048 agents of which a hundred are dead take two rounds of time-outs."""

LOOK_SECONDS = 3.0
"""Time between two looks, as counters have to move before they say anything: agents read their
sources every second."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at agents.

    Args:
        pages: of those that answered.
        agents: the same agents by the node that they speak for.
        failures: a sentence for each of the others.
    """

    pages: tuple[Page, ...]
    agents: Mapping[str, Agent]
    failures: tuple[str, ...]


def look(agents: Sequence[Agent]) -> Look:
    """Ask every agent for its page; those that give none are named."""
    answers = _answers(agents)
    found = [(page, agent) for page, agent in answers if isinstance(page, Page)]
    failures = [answer for answer, _ in answers if isinstance(answer, str)]
    speakers = Counter(page.node for page, _ in found)
    twice = sorted(node for node, count in speakers.items() if count > 1)
    if twice:
        failures.append(f"more than one agent speaks for {', '.join(twice)}")
    return Look(
        pages=tuple(page for page, _ in found),
        agents={page.node: agent for page, agent in found},
        failures=tuple(failures),
    )


def pages(agents: Sequence[Agent]) -> tuple[list[Page], list[str]]:
    """Return the agents' pages, and a sentence for each that gives none."""
    answers = [answer for answer, _ in _answers(agents)]
    found = [answer for answer in answers if isinstance(answer, Page)]
    return found, [answer for answer in answers if isinstance(answer, str)]


def _answers(agents: Sequence[Agent]) -> list[tuple[Page | str, Agent]]:
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        return list(zip(pool.map(_page, agents), agents, strict=True))


def _page(agent: Agent) -> Page | str:
    """Return an agent's page, or one sentence about why there is none."""
    try:
        node = str(agent.json("/healthz").get("node", agent.url))
        text = agent.text("/metrics")
    except AgentError as error:
        return str(error)
    return Page(node, time.time(), text)


def again(first: Look, started: float) -> Look:
    """Look a second time at the agents that answered, when enough time has passed.

    Args:
        first: the first look.
        started: `time.monotonic()` at its end.
    """
    time.sleep(max(0.0, started + LOOK_SECONDS - time.monotonic()))
    return look(list(first.agents.values()))


def environments(agents: Mapping[str, Agent], nodes: Sequence[str]) -> Iterator[RankEnvironment]:
    """Yield the transport variables of the ranks on these nodes, as far as agents know them."""
    known = [(node, agents[node]) for node in nodes if node in agents]
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        listings = pool.map(_listing, (agent for _, agent in known))
        for (node, _), listing in zip(known, listings, strict=True):
            yield from of_listing(node, listing)


def _listing(agent: Agent) -> Mapping[str, Any]:
    try:
        return agent.json("/api/v1/pods")
    except AgentError:
        return {}
