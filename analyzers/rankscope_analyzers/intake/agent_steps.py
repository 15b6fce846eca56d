"""Fetches step records from agents and combines them by job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from rankscope_agent.contract.job_names import is_job_id
from rankscope_analyzers.intake import left_out, readable_rows
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_saves import Saves
from rankscope_analyzers.intake.agent_timeouts import LARGE_AT_ONCE
from rankscope_analyzers.intake.collective_windows import (
    COMPARISON_SECONDS,
    MAXIMUM_ANSWER_BYTES,
    STEPS_SECONDS,
    length_of_windows,
    unread,
    windows_by_job,
)
from rankscope_analyzers.intake.credentials import NONE, Entry
from rankscope_analyzers.intake.deadline import Deadline
from rankscope_analyzers.intake.job_ownership import (
    NO_CONTEXT,
    Notes,
    PageContext,
    Source,
    claims_of,
    notes,
    refused,
)
from rankscope_analyzers.intake.step_history import (
    AGENT,
    StepAnswer,
    StepHistory,
    step_answer,
)
from rankscope_analyzers.intake.step_history import table as step_table
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.steps.beside_steps import BesideSteps
from rankscope_analyzers.steps.job_records import JobRecords, Read, SourceError
from rankscope_analyzers.steps.records import MAXIMUM_RANK

NARROWINGS = 6
"""An agent sends half a million rows at most; older agents cut them off after the first ranks.
Querying again for a quarter of the time, six times, shrinks a week to two minutes; what is needed
is the newest of all ranks."""


def from_agents(
    urls: Sequence[str],
    job_id: str | None,
    since_unix_seconds: float,
    entry: Entry = NONE,
    history: StepHistory | None = None,
    comparison_seconds: float = COMPARISON_SECONDS,
    context: PageContext = NO_CONTEXT,
) -> Read:
    """Query agents for the step records of their nodes and combine them by job.

    Args:
        urls: addresses of agents.
        job_id: the job to query, None for all.
        since_unix_seconds: only steps that started later.
        entry: credentials.
        history: the responses to earlier requests.
        comparison_seconds: how long comparing collectives may take; the more nodes there are, the
            shorter is the time that is compared.
        context: what is known of the agents, and ranks that are not trusted.

    Raises:
        SourceError: no agent answered, or none that did has a step record.
    """
    oldest, known = since_unix_seconds, StepHistory() if history is None else history
    known.keep(urls)
    agents = [Agent(url, entry, timeouts=known.timeouts) for url in urls]
    answers = _answers(agents, job_id, oldest, known)
    nodes = [answer for answer in answers if isinstance(answer, _NodeAnswer)]
    errors = tuple(answer for answer in answers if isinstance(answer, AnalysisError))
    failures = tuple(_sentence(one) for one in answers if not isinstance(one, _NodeAnswer))
    if not nodes:
        raise SourceError("; ".join(failures), errors=errors)
    believed, distrusted = _believed(nodes, context)
    steps = known.add([node.steps for node in believed], oldest)
    if steps.empty:
        raise SourceError("; ".join((*failures, _none(urls, job_id))), bool(failures), errors)
    blind = [node.agent for node in believed if known.lacks_sync(node.steps.url)]
    length = length_of_windows(len(blind), comparison_seconds)
    windows = windows_by_job(blind, job_id, oldest, length, known, distrusted)
    sizes = _world_sizes(believed, known)
    saves = _saves_by_job(believed, distrusted)
    starts = by_job(step_table([node.start for node in believed if node.start is not None]))
    no_room = [known.left_out(node.agent.url, oldest) for node in believed]
    missing = _missing(believed, steps, distrusted, left_out.notes(no_room, job_id))
    jobs = tuple(
        JobRecords(
            str(name),
            rows.drop(columns=AGENT),
            sizes.get(name),
            (*failures, *missing.get(str(name), ()), *unread(rows, len(blind), length)),
            live=True,
            windows=tuple(windows.get(name, ())),
            start=starts.get(str(name)),
            beside=tuple(saves.get(str(name), ())),
        )
        for name, rows in steps.groupby("job_id", sort=True)
    )
    return Read(jobs, failures, errors)


def _none(urls: Sequence[str], job_id: str | None) -> str:
    wanted = f"of job {job_id} " if job_id else ""
    return f"no step records {wanted}at {', '.join(urls)}: is the probe injected?"


def _missing(
    nodes: Sequence[_NodeAnswer], steps: pd.DataFrame, distrusted: _Refused, no_room: Notes
) -> Mapping[str, Sequence[str]]:
    """Return sentences about records that are not trusted, missing or unreadable, by job."""
    ranks = [rank for node in nodes for rank in node.ranks]
    unreadable = [(node.agent.url, node.steps.unread) for node in nodes if node.steps.unread]
    return {
        str(name): (
            *distrusted.notes.get(str(name), ()),
            *no_room.get(str(name), ()),
            *readable_rows.sentences(unreadable, str(name)),
            *left_out.behind(ranks, str(name), set(present)),
        )
        for name, present in steps.groupby("job_id")["rank"]
    }


def _sentence(answer: str | AnalysisError) -> str:
    return answer if isinstance(answer, str) else f"agent {answer.about}: {answer}"


def by_job(records: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """Return the records of each job."""
    if records.empty:
        return {}
    return {str(name): rows for name, rows in records.groupby("job_id", sort=False)}


@dataclass(frozen=True, slots=True)
class _NodeAnswer:
    """An agent's response.

    Args:
        start: the first records of its ranks, only at the first look.
        saves: what its ranks saved outside of steps, with their jobs.
    """

    agent: Agent
    steps: StepAnswer
    ranks: list[dict[str, Any]]
    start: StepAnswer | None = None
    saves: Saves = ()


@dataclass(frozen=True, slots=True)
class _Refused:
    """Ranks that are not trusted: address of the agent, job and number of each."""

    ranks: frozenset[Source]
    notes: Notes

    def has(self, url: str, answer: Mapping[str, Any]) -> bool:
        """Return True if an agent's record is about such a rank."""
        return (url, str(answer.get("job_id")), str(answer.get("rank"))) in self.ranks


def _believed(
    nodes: Sequence[_NodeAnswer], context: PageContext
) -> tuple[Sequence[_NodeAnswer], _Refused]:
    """Leave out ranks that claim a job that is not theirs, and names that no job has."""
    named = {context.names.get(node.agent.url, node.agent.url): node for node in nodes}
    claims = {one for name, node in named.items() for one in claims_of(name, node.ranks)}
    foreign = refused(claims)
    silent = any("pod_namespace" not in rank for node in nodes for rank in node.ranks)
    distrusted_sources = {one.key for one in foreign} | (
        context.refused() if silent else frozenset()
    )
    found = _Refused(
        frozenset(
            (named[name].agent.url, job, rank)
            for name, job, rank in distrusted_sources
            if name in named
        ),
        notes(foreign, {one.job_id for one in claims.difference(foreign)}),
    )
    return [_without(node, found, context.placed.get(node.agent.url)) for node in nodes], found


def _without(node: _NodeAnswer, found: _Refused, placed: str | None) -> _NodeAnswer:
    """Return an agent's response without refused ranks; all on its node if that is known."""
    start = None if node.start is None else _believable(node.start, found, placed)
    ranks = [rank for rank in node.ranks if not found.has(node.agent.url, rank)]
    steps = _believable(node.steps, found, placed)
    return _NodeAnswer(node.agent, steps, ranks, start, node.saves)


def _believable(answer: StepAnswer, distrusted: _Refused, placed: str | None) -> StepAnswer:
    jobs, numbers = answer.column("job_id"), answer.column("rank")
    names = {job for job in set(jobs) if is_job_id(job)}
    if placed is None and len(names) == len(set(jobs)) and not distrusted.ranks:
        return answer
    rows = [
        row
        for row, job, number in zip(answer.rows, jobs, numbers, strict=True)
        if job in names and (answer.url, job, str(number)) not in distrusted.ranks
    ]
    if placed is not None and "node" in answer.columns:
        at = answer.columns.index("node")
        rows = [[*row[:at], placed, *row[at + 1 :]] for row in rows]
    room = {
        (job, rank): until
        for (job, rank), until in answer.left_out.items()
        if (answer.url, job, str(rank)) not in distrusted.ranks
    }
    return replace(answer, rows=rows, left_out=room)


def _answers(
    agents: Sequence[Agent], job_id: str | None, oldest: float, history: StepHistory
) -> Sequence[_NodeAnswer | str | AnalysisError]:
    with ThreadPoolExecutor(LARGE_AT_ONCE) as pool:
        return list(pool.map(lambda agent: _asked(agent, job_id, oldest, history), agents))


def _asked(
    agent: Agent, job_id: str | None, oldest: float, history: StepHistory
) -> _NodeAnswer | str | AnalysisError:
    return attempt("source", agent.url, lambda: _ask(agent, job_id, oldest, history))


def _ask(
    agent: Agent, job_id: str | None, oldest: float, history: StepHistory
) -> _NodeAnswer | str:
    """Return an agent's response, or one sentence about why there is none."""
    try:
        ranks = [rank for rank in agent.json("/api/v1/ranks")["ranks"] if isinstance(rank, dict)]
        since, first_look = history.since(agent.url, ranks, oldest), not history.knows(agent.url)
        answer = _steps(agent, job_id, since)
        start = _start(agent, job_id, oldest) if first_look else None
        saves = history.saves.of_agent(agent, job_id, oldest)
        return _NodeAnswer(agent, answer, ranks, start, saves)
    except AgentError as error:
        return str(error)
    except (ValueError, KeyError, TypeError) as error:
        return f"{agent.url} does not answer like a rankscope agent: {error!r}"


def _steps(agent: Agent, job_id: str | None, since_unix_seconds: float) -> StepAnswer:
    """Fetch step records, of a shorter time as long as the agent had to leave some out."""
    since, all_answers = since_unix_seconds, Deadline(STEPS_SECONDS)
    for _ in range(NARROWINGS):
        query = {"since": f"{since:.6f}", **({"job": job_id} if job_id else {})}
        path = f"/api/v1/steps?{urlencode(query)}"
        document = agent.json(path, MAXIMUM_ANSWER_BYTES, STEPS_SECONDS - all_answers.passed)
        answer = step_answer(agent.url, since, document)
        if not document.get("truncated"):
            return answer
        starts = [start for _, start in answer.starts()]
        since = max(starts) - (max(starts) - min(starts)) / 4
    raise ValueError(f"more than {len(answer.rows)} records since {since:.0f}")


def _start(agent: Agent, job_id: str | None, before_unix_seconds: float) -> StepAnswer | None:
    """Fetch the first records of each rank, of steps before a moment; None if that fails."""
    query = urlencode(
        {"since": f"{before_unix_seconds:.6f}", **({"job": job_id} if job_id else {})}
    )
    try:
        answer = agent.json(f"/api/v1/step_starts?{query}", MAXIMUM_ANSWER_BYTES, STEPS_SECONDS)
        return step_answer(agent.url, 0.0, answer)
    except (AgentError, ValueError, KeyError, TypeError):
        return None  # older agents have no such page, and the newest records are worth more


def _saves_by_job(
    nodes: Sequence[_NodeAnswer], distrusted: _Refused
) -> Mapping[str, list[BesideSteps]]:
    """Return saves by job, without those of ranks that are not trusted."""
    found: dict[str, list[BesideSteps]] = defaultdict(list)
    for node in nodes:
        for job, span in node.saves:
            if (node.agent.url, job, str(span.rank)) not in distrusted.ranks:
                found[job].append(span)
    return found


def _world_sizes(nodes: Sequence[_NodeAnswer], known: StepHistory) -> Mapping[Any, int]:
    """Return the size of jobs by their living ranks, or by those that ended last.

    A job that shrank has nodes on which all ranks ended and which know only its former size.
    """
    alive: dict[str, set[int]] = defaultdict(set)
    ended: dict[str, tuple[float, set[int]]] = {}
    for node in nodes:
        newest: dict[Any, float] = defaultdict(float)
        for (job, _), start in known.newest(node.steps.url).items():
            newest[job] = max(newest[job], start)
        sizes: dict[str, set[int]] = defaultdict(set)
        for rank in node.ranks:
            job, size = str(rank.get("job_id")), rank.get("world_size")
            if isinstance(size, int) and 0 < size <= MAXIMUM_RANK + 1:
                sizes[job].add(size)
                if rank.get("alive"):
                    alive[job].add(size)
        for job, several in sizes.items():
            ended[job] = max(ended.get(job, (-1.0, set())), (newest[job], several), key=_time)
    return {job: max(alive.get(job) or several) for job, (_, several) in ended.items()}


def _time(of_node: tuple[float, set[int]]) -> float:
    return of_node[0]
