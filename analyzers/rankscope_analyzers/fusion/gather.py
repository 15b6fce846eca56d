"""Read step records and all other series from agents, Prometheus or files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.fusion.job_reports import READS, JobEvidence
from rankscope_analyzers.fusion.known_gpus import with_gpus, without_gpus
from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS
from rankscope_analyzers.intake import (
    agent_pages,
    agent_stalls,
    clock_skew,
    garbage_collection,
    job_ownership,
    node_notices,
    prometheus_instances,
    prometheus_nodes,
)
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.agent_pages import AgentPoll
from rankscope_analyzers.intake.agent_saves import SavesOfJobs
from rankscope_analyzers.intake.agent_steps import from_agents
from rankscope_analyzers.intake.cluster import NO_AGENT, NodeAgents
from rankscope_analyzers.intake.collective_windows import COMPARISON_SECONDS
from rankscope_analyzers.intake.credentials import NONE, Entry
from rankscope_analyzers.intake.environment_skew import differences
from rankscope_analyzers.intake.job_ownership import Believed
from rankscope_analyzers.intake.node_notices import NodeNotices
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.intake.observed import gathered as put_together
from rankscope_analyzers.intake.page_history import PageHistory
from rankscope_analyzers.intake.prometheus_api import Prometheus
from rankscope_analyzers.intake.prometheus_steps import from_prometheus as steps_of_prometheus
from rankscope_analyzers.intake.step_history import StepHistory
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.layers import environment
from rankscope_analyzers.layers.rank_locations import rank_locations
from rankscope_analyzers.steps.job_records import JobRecords, Read, SourceError
from rankscope_analyzers.text.name_lists import shortened

KEPT_POLLS = 9
"""Polls of agents' pages that counters are judged over: four minutes at the watch's default
interval."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Step records by job, and the other data that was read.

    Args:
        poll: the newest poll of agents, None if none were polled.
        silent: number of agents that did not answer.
        errors: raised while agents' responses were processed.
    """

    jobs: tuple[JobRecords, ...]
    evidence: JobEvidence
    poll: AgentPoll | None = None
    silent: int = 0
    errors: tuple[AnalysisError, ...] = ()


class EarlierPolls:
    """The results of earlier polls of agents.

    Args:
        comparison_seconds: time that a poll may spend on comparing collectives.
        reads: series to keep in addition to those of reports.
    """

    def __init__(self, comparison_seconds: float, reads: Sequence[Metric] = ()) -> None:
        self.comparison_seconds = comparison_seconds
        self.pages = PageHistory((*READS, *reads), KEPT_POLLS)
        self.steps = StepHistory()


Files = TypeVar("Files")


def of_files(read: Callable[[Sequence[Files]], Read], paths: Sequence[Files]) -> Gathered:
    """Read traces.

    Raises:
        SourceError: none can be read.
    """
    found = read(paths)
    return Gathered(found.jobs, JobEvidence(sources=tuple(map(str, paths))), errors=found.errors)


@garbage_collection.paused()
def of_agents(
    urls: Sequence[str],
    job_id: str | None,
    since_unix_seconds: float,
    entry: Entry = NONE,
    earlier: EarlierPolls | None = None,
    cluster: NodeAgents | None = None,
    hang_after_seconds: float = HANG_AFTER_SECONDS,
) -> Gathered:
    """Query agents for step records and for their pages.

    Pages are read twice, while records are fetched, unless there were earlier polls; they are read
    sooner if no job completes steps any longer.

    Args:
        urls: addresses of agents.
        job_id: the job to query, None for all.
        since_unix_seconds: only steps that started later.
        entry: credentials.
        earlier: earlier polls of the same agents; this poll is added.
        cluster: the agents as the API server lists them.
        hang_after_seconds: time without a step after which a job may be called hung.

    Raises:
        SourceError: no agent answers, or none knows of a job.
    """
    if not urls:
        raise SourceError(shortened(_unlisted(cluster)) or NO_AGENT)
    polls = EarlierPolls(COMPARISON_SECONDS) if earlier is None else earlier
    node_of_url = {} if cluster is None else cluster.nodes
    first = agent_pages.poll(_agents(urls, entry, node_of_url, polls))
    if not first.pages:
        raise SourceError(shortened(first.failures), errors=first.errors)
    started = time.monotonic()
    errors = [*first.errors, *polls.pages.add(first.pages, since_unix_seconds)]
    names = {agent.url: node for node, agent in first.agents.items()}
    page_context = job_ownership.PageContext(
        names, node_of_url, lambda: job_ownership.believed(polls.pages.observed()).ranks
    )
    asked = (list(names), job_id, since_unix_seconds, entry)
    steps = partial(from_agents, *asked, polls.steps, polls.comparison_seconds, page_context)
    repeat = polls.pages.polls == 1
    quiet = agent_stalls.quiet_seconds(polls.pages.observed(), job_id) if repeat else None
    apart = agent_pages.seconds_between(hang_after_seconds - (quiet or 0.0))
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(agent_pages.poll_again, first, started, apart) if repeat else None
        read, problem = _steps(steps)
        poll = later.result() if later else first
    if repeat:
        errors.extend((*poll.errors, *polls.pages.add(poll.pages)))
    seen = job_ownership.believed(polls.pages.observed("agents' pages"))
    evidence, failed = _page_evidence(first, seen, tuple(urls), cluster)
    evidence = _with_stalls(evidence, poll, seen.observed, job_id)
    # Agents that are missing or refuse access may have step records that were not read.
    absent = evidence.notes[:1] if first.failures or _unlisted(cluster) else ()
    found = _with_corrected_clocks(read, evidence, problem, absent)
    errors_of_all = (*errors, *failed, *found.errors)
    return replace(found, poll=poll, silent=len(urls) - len(first.agents), errors=errors_of_all)


@dataclass(frozen=True, slots=True)
class PageLook:
    """What agents' pages say, without step records.

    Args:
        poll: of agents.
        silent: number of agents that did not answer.
        errors: raised while pages were processed.
        asking_cpu_seconds: CPU time of the threads that fetched them.
        saves: what ranks saved outside of steps, by job.
    """

    evidence: JobEvidence
    poll: AgentPoll
    silent: int
    errors: tuple[AnalysisError, ...] = ()
    asking_cpu_seconds: float = 0.0
    saves: SavesOfJobs = field(default_factory=dict)


@garbage_collection.paused()
def pages_of_agents(
    urls: Sequence[str],
    since_unix_seconds: float,
    entry: Entry,
    earlier: EarlierPolls,
    cluster: NodeAgents | None = None,
) -> PageLook:
    """Fetch agents' pages and saves only, for callers that follow step records separately.

    Args:
        urls: addresses of agents.
        since_unix_seconds: pages that were read earlier are dropped.
        entry: credentials.
        earlier: earlier polls of the same agents; this poll is added.
        cluster: the agents as the API server lists them.

    Raises:
        SourceError: no agent answers.
    """
    if not urls:
        raise SourceError(shortened(_unlisted(cluster)) or NO_AGENT)
    node_of_url = {} if cluster is None else cluster.nodes
    first = agent_pages.poll(_agents(urls, entry, node_of_url, earlier))
    if not first.pages:
        raise SourceError(shortened(first.failures), errors=first.errors)
    errors = [*first.errors, *earlier.pages.add(first.pages, since_unix_seconds)]
    poll, asking = first, first.cpu_seconds
    if earlier.pages.polls == 1:
        poll = agent_pages.poll_again(first, time.monotonic(), agent_pages.POLL_SECONDS)
        errors.extend((*poll.errors, *earlier.pages.add(poll.pages)))
        asking += poll.cpu_seconds
    seen = job_ownership.believed(earlier.pages.observed("agents' pages"))
    evidence, failed = _page_evidence(first, seen, tuple(urls), cluster)
    evidence = _with_stalls(evidence, poll, seen.observed, None)
    earlier.steps.saves.keep(urls)
    answering = list(first.agents.values())
    saves, broken, seconds = earlier.steps.saves.of_agents(answering, since_unix_seconds)
    silent = len(urls) - len(first.agents)
    errors_of_all = (*errors, *failed, *broken)
    return PageLook(evidence, poll, silent, errors_of_all, asking + seconds, saves)


def with_steps(look: PageLook, read: Read, silent: Sequence[str]) -> Gathered:
    """Combine pages with step records, and align the records' times with those of the pages.

    Args:
        look: at pages.
        read: step records that were followed.
        silent: one sentence for each agent that sends no step records.
    """
    absent = (shortened(silent),) if silent else ()
    found = _with_corrected_clocks(read, look.evidence, None, absent)
    errors = (*look.errors, *found.errors)
    return replace(found, poll=look.poll, silent=look.silent, errors=errors)


def _agents(
    urls: Sequence[str], entry: Entry, node_of_url: Mapping[str, str], earlier: EarlierPolls
) -> list[Agent]:
    timeouts = earlier.steps.timeouts
    timeouts.keep(urls)
    return [Agent(url, entry, node_of_url.get(url, ""), timeouts) for url in urls]


def _page_evidence(
    first: AgentPoll, seen: Believed, urls: tuple[str, ...], cluster: NodeAgents | None
) -> tuple[JobEvidence, tuple[AnalysisError, ...]]:
    """Return the evidence from agents' pages; agents that did not answer are in its notes."""
    found = attempt("look", "", partial(_environment, first, seen.observed))
    failures = (*first.failures, *_unlisted(cluster))
    evidence = replace(
        _evidence(seen, urls),
        notes=(*((shortened(failures),) if failures else ()), *seen.notes.get("", ())),
    )
    if isinstance(found, AnalysisError):
        return evidence, (found,)
    return replace(evidence, findings=tuple(found)), ()


def _unlisted(cluster: NodeAgents | None) -> tuple[str, ...]:
    """Return sentences about nodes whose agent the API server does not tell."""
    return () if cluster is None else cluster.doubts


def _with_stalls(
    evidence: JobEvidence, poll: AgentPoll, seen: Observed, job_id: str | None
) -> JobEvidence:
    """Add the states of ranks that end no steps, and to each job's notes those that are unknown."""
    standing = agent_stalls.from_agents(poll.agents, seen, job_id)
    of_jobs = dict(evidence.of_jobs)
    for job, sentences in standing.notes.items():
        of_jobs[job] = (*of_jobs.get(job, ()), shortened(sentences))
    return replace(evidence, stalls=standing.by_job, of_jobs=of_jobs)


@garbage_collection.paused()
def of_prometheus(
    server: Prometheus,
    job_id: str | None,
    since_unix_seconds: float,
    now_unix_seconds: float,
    reads: Sequence[Metric] = (),
) -> Gathered:
    """Read step counters and the series of the job's nodes from Prometheus.

    Args:
        server: to query.
        job_id: the job to query, None for all.
        since_unix_seconds: only steps that started later.
        now_unix_seconds: and no later than this.
        reads: series to read in addition to those of reports.

    Raises:
        SourceError: the server cannot be queried, or knows of no such job.
    """
    server = server.without_warnings()
    span = since_unix_seconds, now_unix_seconds
    instances = prometheus_instances.known(server, job_id, *span)
    seen = prometheus_nodes.from_prometheus(server, instances.nodes, (*READS, *reads), *span)
    read, problem = _steps(lambda: Read(steps_of_prometheus(server, job_id, *span, instances)))
    evidence = _evidence(job_ownership.believed(seen), (server.url,))
    notices = node_notices.from_prometheus(server, job_id, *span)
    if problem is not None and server.doubts:
        whole = "; ".join((str(problem), *server.doubts))
        problem = SourceError(whole, problem.failed, problem.errors)
    doubts = (shortened(instances.doubts),) if instances.doubts else ()
    notes = (*doubts, *server.doubts, *evidence.notes)
    found = _with_corrected_clocks(read, replace(evidence, notes=notes), problem, server.doubts)
    return with_notices(found, notices)


def with_notices(found: Gathered, notices: NodeNotices) -> Gathered:
    """Return what was read, together with what the nodes of its jobs report about themselves.

    A notice from a node that nothing else was read from is left out unless it names the job that
    runs there.
    """
    seen = found.evidence.observed
    known = [one for one in notices.series if one.node in seen.nodes or "job_id" in one.labels]
    evidence = replace(
        found.evidence,
        observed=put_together((*seen.all(), *known), seen.source, seen.unread) if known else seen,
        notes=(*found.evidence.notes, *notices.not_read),
    )
    return replace(found, evidence=evidence)


def _steps(read: Callable[[], Read]) -> tuple[Read, SourceError | None]:
    """Return step records; jobs without any can still be judged by other evidence."""
    made = attempt("look", "", partial(_read_or_problem, read))
    if isinstance(made, AnalysisError):
        made = SourceError(f"step records: {made}", errors=(made,))
    if isinstance(made, Read):
        return made, None
    return Read(failures=(str(made),) if made.failed else (), errors=made.errors), made


def _read_or_problem(read: Callable[[], Read]) -> Read | SourceError:
    try:
        return read()
    except SourceError as error:
        return error


def _evidence(seen: Believed, read_from: tuple[str, ...]) -> JobEvidence:
    ahead = clock_skew.ahead(seen.observed)
    return JobEvidence(
        clock_skew.of_series(seen.observed, ahead),
        notes=tuple(seen.notes.get("", ())),
        sources=read_from,
        clocks_ahead=ahead,
        of_jobs=seen.notes,
    )


def _with_corrected_clocks(
    read: Read, evidence: JobEvidence, problem: SourceError | None, absent: tuple[str, ...] = ()
) -> Gathered:
    if problem is not None and not evidence.observed.by_node:
        raise problem
    # If it fails, the reports do as well, and state the error.
    located = attempt(
        "look", "", lambda: evidence.of_pages.locations(rank_locations, evidence.observed)
    )
    places = {} if isinstance(located, AnalysisError) else located.jobs
    moved = tuple(
        with_gpus(
            without_gpus(clock_skew.of_records(job, evidence.clocks_ahead), evidence.observed),
            places.get(job.job_id, {}),
        )
        for job in read.jobs
    )
    missing = (*(f"step records: {failure}" for failure in read.failures), *absent)
    return Gathered(moved, replace(evidence, missing=missing), errors=read.errors)


def _environment(first: agent_pages.AgentPoll, seen: Observed) -> Sequence[Finding]:
    """Name the variables that differ in jobs whose ranks have different hashes."""
    hashes: dict[str, set[str]] = {}
    nodes: dict[str, set[str]] = {}
    for metric in environment.READS:
        for series in seen.of(metric):
            job = series.labels.get("job_id", "")
            hashes.setdefault(job, set()).add(series.labels.get("hash", ""))
            nodes.setdefault(job, set()).add(series.node)
    odd = {node for job, found in hashes.items() if len(found) > 1 for node in nodes[job]}
    ranks = agent_pages.environments(first.agents, sorted(odd))
    return list(environment.of_differences(differences(ranks)))
