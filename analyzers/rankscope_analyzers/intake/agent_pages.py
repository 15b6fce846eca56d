"""Asks many agents for their pages at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.environment_skew import RankEnvironment, of_listing
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt

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
        errors: of those whose answers made something raise.
    """

    pages: tuple[Page, ...]
    agents: Mapping[str, Agent]
    failures: tuple[str, ...]
    errors: tuple[AnalysisError, ...] = ()


def look(agents: Sequence[Agent]) -> Look:
    """Ask every agent for its page; those that give none are named."""
    answers = _answers(agents)
    found = [(page, agent) for page, agent in answers if isinstance(page, Page)]
    failures = _failures(answer for answer, _ in answers)
    speakers = Counter(page.node for page, _ in found)
    twice = sorted(node for node, count in speakers.items() if count > 1)
    if twice:
        failures.append(f"more than one agent speaks for {', '.join(twice)}")
    return Look(
        pages=tuple(page for page, _ in found),
        agents={page.node: agent for page, agent in found},
        failures=tuple(failures),
        errors=tuple(answer for answer, _ in answers if isinstance(answer, AnalysisError)),
    )


def pages(agents: Sequence[Agent]) -> tuple[list[Page], list[str]]:
    """Return the agents' pages, and a sentence for each that gives none."""
    answers = [answer for answer, _ in _answers(agents)]
    return [answer for answer in answers if isinstance(answer, Page)], _failures(answers)


_Answer = Page | str | AnalysisError


def _failures(answers: Iterable[_Answer]) -> list[str]:
    return [
        answer if isinstance(answer, str) else f"agent {answer.about}: {answer}"
        for answer in answers
        if not isinstance(answer, Page)
    ]


def _answers(agents: Sequence[Agent]) -> list[tuple[_Answer, Agent]]:
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        return list(zip(pool.map(_isolated, agents), agents, strict=True))


def _isolated(agent: Agent) -> _Answer:
    return attempt("source", agent.url, partial(_page, agent))


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
        for listed in pool.map(_listed, known):
            yield from listed


def _listed(known: tuple[str, Agent]) -> Sequence[RankEnvironment]:
    node, agent = known
    try:
        return list(of_listing(node, agent.json("/api/v1/pods")))
    except AgentError:
        return ()
