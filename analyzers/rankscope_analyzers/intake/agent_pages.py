"""Fetches the pages of many agents at once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import at_once
from rankscope_analyzers.intake.environment_skew import RankEnvironment, of_listing
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.text.name_lists import listed

POLL_SECONDS = 3.0
"""Seconds between two looks, as counters have to change to be informative: agents read their
sources every second."""

STANDING_POLL_SECONDS = 1.0
"""The same if no steps end any longer: what a job waits for does not change counters either."""


PAGE_SECONDS = 1.0
"""Maximum age of a page's content: agents read their sources every second."""


@dataclass(frozen=True, slots=True)
class AgentPoll:
    """One look at agents.

    Args:
        pages: of those that answered.
        agents: the same agents by the node that they report on.
        failures: a sentence for each of the others.
        cpu_seconds: spent on requests, on all threads.
        errors: of those whose responses made an analyzer raise.
    """

    pages: tuple[Page, ...]
    agents: Mapping[str, Agent]
    failures: tuple[str, ...]
    cpu_seconds: float
    errors: tuple[AnalysisError, ...] = ()


def poll(agents: Sequence[Agent]) -> AgentPoll:
    """Fetch every agent's page; agents without one are named.

    If several claim to be on one node, none of them is trusted.
    """
    answers, cpu_seconds = _answers(agents)
    pages_by_node: dict[str, list[tuple[_NodePage, Agent]]] = defaultdict(list)
    for answer, agent in answers:
        if isinstance(answer, _NodePage):
            pages_by_node[answer.page.node].append((answer, agent))
    alone = [several[0] for several in pages_by_node.values() if len(several) == 1]
    return AgentPoll(
        pages=tuple(answer.page for answer, _ in alone),
        agents={answer.page.node: agent for answer, agent in alone},
        failures=(*map(_failure, _without_page(answers)), *_doubts(pages_by_node)),
        errors=tuple(answer for answer, _ in answers if isinstance(answer, AnalysisError)),
        cpu_seconds=cpu_seconds,
    )


def pages(agents: Sequence[Agent]) -> tuple[list[Page], list[str]]:
    """Return the agents' pages, and a sentence for each agent without one or not trusted."""
    pages_by_node = poll(agents)
    return list(pages_by_node.pages), list(pages_by_node.failures)


@dataclass(frozen=True, slots=True)
class _NodePage:
    """A page, and the node that its agent claims to be on."""

    page: Page
    node: str


_Answer = _NodePage | str | AnalysisError


def _without_page(answers: Sequence[tuple[_Answer, Agent]]) -> Iterator[str | AnalysisError]:
    return (answer for answer, _ in answers if not isinstance(answer, _NodePage))


def _failure(answer: str | AnalysisError) -> str:
    return answer if isinstance(answer, str) else f"agent {answer.about}: {answer}"


def _doubts(pages_by_node: Mapping[str, Sequence[tuple[_NodePage, Agent]]]) -> Iterator[str]:
    """Return the agents whose claimed node is wrong or doubtful."""
    for node, several in sorted(pages_by_node.items()):
        if len(several) > 1:
            sentence = (
                f"{len(several)} agents say that they are of node {node}, and none is believed"
            )
            yield f"{sentence}: {listed(sorted(agent.url for _, agent in several))}"
        for answer, agent in several:
            if answer.node != node:
                yield f"the agent of node {node} calls itself {answer.node} ({agent.url})"


def _answers(agents: Sequence[Agent]) -> tuple[Sequence[tuple[_Answer, Agent]], float]:
    """Query each agent once, however often its address was given; return the CPU time as well."""
    once = list({_address(agent): agent for agent in agents}.values())
    with ThreadPoolExecutor(at_once(len(once))) as pool:
        found = list(pool.map(_isolated, once))
    answers = [(answer, agent) for (answer, _), agent in zip(found, once, strict=True)]
    return answers, sum(cpu_seconds for _, cpu_seconds in found)


def _address(agent: Agent) -> str:
    try:
        return agent.base
    except AgentError:  # not an address, which is reported when it is queried
        return agent.url


def _isolated(agent: Agent) -> tuple[_Answer, float]:
    began = time.thread_time()
    answer = attempt("source", agent.url, partial(_page, agent))
    return answer, time.thread_time() - began


def _page(agent: Agent) -> _NodePage | str:
    """Return an agent's page, or one sentence about why there is none.

    It belongs to the node that the agent's pod is on, if that is known, whatever it claims.
    """
    try:
        node = str(agent.json("/healthz").get("node", agent.url))
        body = agent.packed("/metrics")
    except AgentError as error:
        return str(error)
    return _NodePage(Page(agent.node or node, time.time(), body), node)


def seconds_between(left: float) -> float:
    """Return the time from the first look to the second.

    If the moment is near at which a job is called hung, the second look is to see it.

    Args:
        left: seconds until the jobs are called hung if they make no further step.
    """
    return min(POLL_SECONDS, max(STANDING_POLL_SECONDS, left + PAGE_SECONDS))


def poll_again(first: AgentPoll, started: float, apart: float) -> AgentPoll:
    """Look a second time at the agents that answered, when enough time has passed.

    Args:
        first: the first look.
        started: `time.monotonic()` at its end.
        apart: seconds between both.
    """
    time.sleep(max(0.0, started + apart - time.monotonic()))
    return poll(list(first.agents.values()))


def environments(agents: Mapping[str, Agent], nodes: Sequence[str]) -> Iterator[RankEnvironment]:
    """Yield the transport variables of the ranks on these nodes, as far as agents know them."""
    known = [(node, agents[node]) for node in nodes if node in agents]
    with ThreadPoolExecutor(at_once(len(known))) as pool:
        for listed in pool.map(_listed, known):
            yield from listed


def _listed(known: tuple[str, Agent]) -> Sequence[RankEnvironment]:
    node, agent = known
    try:
        return list(of_listing(node, agent.json("/api/v1/pods")))
    except AgentError:
        return ()
