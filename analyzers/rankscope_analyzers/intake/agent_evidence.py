"""Queries agents for what they know of a hung job, part by part, and for what they kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from rankscope_agent.contract import stalls
from rankscope_agent.contract.stalls import RankStall
from rankscope_analyzers.intake.agent_client import Agent, AgentError, StatusError
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.intake.step_history import StepAnswer, step_answer
from rankscope_analyzers.intake.step_history import table as step_table

POOL_SIZE = 32
MAXIMUM_PART_BYTES = 32 << 20
MAXIMUM_KEPT_BYTES = 80 << 20
ANSWER_SECONDS = 25.0
"""RAS may take five seconds, eight ranks that do not answer three."""

NOT_FOUND = 404
"""Status of an agent that is older than what is requested."""

EVIDENCE, HANGS = "/api/v1/evidence", "/api/v1/hangs"

RAS, STALLS, PROCESSES, KERNEL, LOGS = "ras", "stalls", "processes", "kernel", "logs"
FIRST = (RAS, STALLS, PROCESSES)
"""Short-lived parts, in order of their lifetime; requested before anything else."""

LAST = (RAS, KERNEL, LOGS)
"""RAS once more, as only counts that do not change show a hang; then the long-lived parts."""

Answers = Mapping[str, Mapping[str, Any]]
"""The response of each agent, by its node."""


def part(agents: Sequence[Agent], job_id: str, name: str) -> Answers:
    """Return one part of what agents know of a job; agents without it give the reason."""
    path = f"{EVIDENCE}?{urlencode({'job': job_id, 'part': name})}"
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        answers = pool.map(partial(_asked, path=path), agents)
        return dict(answers)


def _asked(agent: Agent, path: str) -> tuple[str, Mapping[str, Any]]:
    try:
        answer = agent.json(path, MAXIMUM_PART_BYTES, ANSWER_SECONDS)
    except AgentError as error:
        return agent.node or agent.url, {"not_read": str(error)}
    if not isinstance(answer, dict):
        return agent.node or agent.url, {"not_read": "answers no object"}
    return agent.node or str(answer.get("node", agent.url)), answer


def readable(answers: Answers, name: str) -> bool:
    """Return True if any agent has this part."""
    found = (one.get(name) for one in answers.values())
    return any(isinstance(one, dict) and not one.get("not_read") for one in found)


def kept(agents: Sequence[Agent], job_id: str) -> Answers:
    """Return the newest evidence that each agent has kept of a job, or why that is unknown."""
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        found = pool.map(partial(_newest_kept, job_id=job_id), agents)
        return {node: one for node, one in found if one}


def unread(answers: Answers) -> Iterator[str]:
    """Yield why agents gave nothing."""
    return (str(one["not_read"]) for one in answers.values() if "not_read" in one)


def _newest_kept(agent: Agent, job_id: str) -> tuple[str, Mapping[str, Any]]:
    """Return what an agent last kept of a job, or why it is unknown; nothing from an older one."""
    try:
        listed = agent.json(f"{HANGS}?{urlencode({'job': job_id})}", MAXIMUM_PART_BYTES)
        node = agent.node or str(listed["node"])
        ids = sorted(str(one["id"]) for one in listed["hangs"])
        if not ids:
            return node, {}
        query = urlencode({"job": job_id, "id": ids[-1]})
        found = agent.json(f"{HANGS}?{query}", MAXIMUM_KEPT_BYTES, ANSWER_SECONDS)["hang"]
    except AgentError as error:
        has_none = isinstance(error, StatusError) and error.status == NOT_FOUND
        return agent.node or agent.url, {} if has_none else {"not_read": str(error)}
    except (LookupError, TypeError):
        return agent.node or agent.url, {}
    return node, found if isinstance(found, dict) and found.get("job_id") == job_id else {}


def kept_pages(found: Answers) -> tuple[Sequence[Page], Sequence[Page]]:
    """Return the pages that were kept, the first and the second of each node."""
    pages: tuple[list[Page], list[Page]] = [], []
    for node, one in found.items():
        for number, page in enumerate(_pages(one)[:2]):
            pages[number].append(Page(node, *page))
    return pages


def _pages(one: Mapping[str, Any]) -> list[tuple[float, str]]:
    try:
        return [(float(page["taken_unix_seconds"]), str(page["text"])) for page in one["pages"]]
    except (LookupError, TypeError, ValueError):
        return []


def kept_stalls(found: Answers) -> Sequence[RankStall]:
    """Return the state of the ranks when evidence was kept."""
    return [stall for one in found.values() for stall in _stalls(one)]


def kept_steps(found: Answers, job_id: str) -> pd.DataFrame:
    """Return the records of a job's steps that were kept, each of the node that kept it."""
    answers = [_steps(node, one, job_id) for node, one in found.items()]
    return step_table([answer for answer in answers if answer is not None])


def _steps(node: str, one: Mapping[str, Any], job_id: str) -> StepAnswer | None:
    """Return what one agent kept; nothing from an older agent, or if it cannot be read."""
    try:
        answer = step_answer(node, 0.0, one["steps"])
        jobs, place = answer.column("job_id"), answer.columns.index("node")
    except (LookupError, TypeError, ValueError):
        return None
    mine = [row for row, job in zip(answer.rows, jobs, strict=True) if job == job_id]
    return replace(answer, rows=[[*row[:place], node, *row[place + 1 :]] for row in mine])


def _stalls(one: Mapping[str, Any]) -> Sequence[RankStall]:
    try:
        return stalls.readable(one["stalls"]["stalls"])
    except (LookupError, TypeError):
        return ()
