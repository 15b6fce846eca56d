"""What agents know about a run other than its steps: images, commands, variables and versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import gpus, nccl_log
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import at_once
from rankscope_analyzers.intake.job_ownership import is_believed
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.runs.record import RankFacts

VERSIONS: Sequence[tuple[str, Metric, str]] = (
    ("GPU driver", gpus.GPU_INFO, "driver"),
    ("GPU model", gpus.GPU_INFO, "model"),
    ("GPU firmware", gpus.GPU_INFO, "vbios"),
    ("NCCL", nccl_log.NCCL_NET_INFO, "version"),
    ("NCCL network", nccl_log.NCCL_NET_INFO, "net"),
    ("agent", agent_metrics.BUILD_INFO, "version"),
)
"""Versions in a node's series: name, series and label."""

NodesByJob = Mapping[str, Collection[str]]
FactsByJob = Mapping[str, Sequence[RankFacts] | AnalysisError]
Documents = tuple[Mapping[str, Any], Mapping[str, Any]]
"""An agent's pods and ranks."""


def facts(poll: agent_pages.AgentPoll, nodes: NodesByJob) -> FactsByJob:
    """Query the agents of a look for what they know of jobs' ranks; silent ones are left out.

    Args:
        poll: the look.
        nodes: of each job. The agent of a node is queried once for all of its jobs.
    """
    jobs_by_node: dict[str, list[str]] = {}
    for job_id, of_job in nodes.items():
        for node in of_job:
            if node in poll.agents:
                jobs_by_node.setdefault(node, []).append(job_id)
    pages = {page.node: page for page in poll.pages}
    found: dict[str, list[RankFacts] | AnalysisError] = {job_id: [] for job_id in nodes}

    def ask(node: str) -> Sequence[tuple[str, Sequence[RankFacts] | AnalysisError]]:
        documents = _asked(poll.agents[node])
        of_job = partial(_of_job, node, documents, pages.get(node))
        return [
            (job_id, attempt("report", job_id, partial(of_job, job_id)))
            for job_id in jobs_by_node[node]
        ]

    with ThreadPoolExecutor(at_once(len(jobs_by_node))) as pool:
        for answer in pool.map(ask, jobs_by_node):
            for job_id, ranks in answer:
                _add(found, job_id, ranks)
    return found


def _add(
    found: dict[str, list[RankFacts] | AnalysisError],
    job_id: str,
    ranks: Sequence[RankFacts] | AnalysisError,
) -> None:
    """Add what one agent knows of a job; an error costs the job all others' knowledge."""
    known = found[job_id]
    if isinstance(known, AnalysisError):
        return
    if isinstance(ranks, AnalysisError):
        found[job_id] = ranks
    else:
        known.extend(ranks)


def _of_job(node: str, documents: Documents, page: Page | None, job_id: str) -> list[RankFacts]:
    pods, ranks = documents
    versions = {} if page is None else _versions(page)
    images = {
        (str(pod.get("uid")), name): image
        for pod in _rows(pods, "pods")
        for name, image in _mapping(pod.get("images")).items()
    }
    by_process, by_probe = _rows_of_job(pods, job_id), _rows_of_job(ranks, job_id)
    return [
        _rank(rank, node, by_process.get(rank, {}), by_probe.get(rank, {}), images, versions)
        for rank in sorted({*by_process, *by_probe})
    ]


def _versions(page: Page) -> Mapping[str, str]:
    """Return the versions in a node's series."""
    seen = from_pages([page], [metric for _, metric, _ in VERSIONS])
    found: dict[str, str] = {}
    for name, metric, label in VERSIONS:
        for series in seen.of(metric):
            if series.labels.get(label):
                found.setdefault(name, series.labels[label])
    return found


def _rank(
    rank: int,
    node: str,
    row: Mapping[str, Any],
    probe: Mapping[str, Any],
    images: Mapping[tuple[str, str], Any],
    versions: Mapping[str, str],
) -> RankFacts:
    own = {
        name: str(probe[key])
        for name, key in (("torch", "torch_version"), ("probe", "probe_version"))
        if probe.get(key)
    }
    attempt = probe.get("attempt", row.get("attempt"))
    command = row.get("command")
    pod = f"{row.get('pod_namespace') or ''}/{row.get('pod_name') or ''}"
    return RankFacts(
        rank=rank,
        node=node,
        uuid=str(row.get("uuid") or ""),
        pod="" if pod == "/" else pod,
        attempt=attempt if isinstance(attempt, int) else 0,
        image=str(images.get((str(row.get("pod_uid")), str(row.get("container_name"))), "")),
        command=tuple(map(str, command)) if isinstance(command, list) else (),
        environment={str(k): str(v) for k, v in _mapping(row.get("environment")).items()},
        versions={**versions, **own},
    )


def _asked(agent: Agent) -> Documents:
    try:
        return agent.json("/api/v1/pods"), agent.json("/api/v1/ranks")
    except AgentError:
        return {}, {}


def _rows_of_job(document: Mapping[str, Any], job_id: str) -> Mapping[int, Mapping[str, Any]]:
    """Return a job's rows by rank."""
    rows = ((row.get("rank"), row) for row in _rows(document, "ranks"))
    return {
        rank: row
        for rank, row in rows
        if isinstance(rank, int)
        and row.get("job_id") == job_id
        and is_believed(job_id, row.get("pod_namespace"))
    }


def _rows(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = document.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
