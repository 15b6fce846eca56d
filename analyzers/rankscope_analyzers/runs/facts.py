"""What agents know about a run other than its steps: images, commands, variables and versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import gpus, nccl_log
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import at_once
from rankscope_analyzers.intake.job_ownership import is_believed
from rankscope_analyzers.intake.page_history import from_pages
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


def _versions(poll: agent_pages.AgentPoll) -> Mapping[str, Mapping[str, str]]:
    """Return the versions in each node's series."""
    seen = from_pages(poll.pages, [metric for _, metric, _ in VERSIONS])
    found: dict[str, dict[str, str]] = {}
    for name, metric, label in VERSIONS:
        for series in seen.of(metric):
            if series.labels.get(label):
                found.setdefault(series.node, {}).setdefault(name, series.labels[label])
    return found


def facts(poll: agent_pages.AgentPoll, job_id: str) -> Iterator[RankFacts]:
    """Query the agents of a look for what they know of a job's ranks; silent ones are left out."""
    agents, versions = poll.agents, _versions(poll)
    with ThreadPoolExecutor(at_once(len(agents))) as pool:
        answers = list(pool.map(_asked, agents.values()))
    for node, (pods, ranks) in zip(agents, answers, strict=True):
        images = {
            (str(pod.get("uid")), name): image
            for pod in _rows(pods, "pods")
            for name, image in _mapping(pod.get("images")).items()
        }
        by_process, by_probe = _of_job(pods, job_id), _of_job(ranks, job_id)
        for rank in sorted({*by_process, *by_probe}):
            row, probe = by_process.get(rank, {}), by_probe.get(rank, {})
            yield _rank(rank, node, row, probe, images, versions.get(node, {}))


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


def _asked(agent: Agent) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    try:
        return agent.json("/api/v1/pods"), agent.json("/api/v1/ranks")
    except AgentError:
        return {}, {}


def _of_job(document: Mapping[str, Any], job_id: str) -> Mapping[int, Mapping[str, Any]]:
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
