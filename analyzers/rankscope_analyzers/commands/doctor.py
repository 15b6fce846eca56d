"""`rankscope doctor [POD]`: what the agent sees of a node or a pod, and what is missing."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console

from rankscope_analyzers.arguments.doctor import LOCAL_AGENT
from rankscope_analyzers.command import InputError, print_json
from rankscope_analyzers.commands import connection
from rankscope_analyzers.doctor import agent_startup
from rankscope_analyzers.doctor.checks import AgentFacts, Check, find_pod, node_checks, pod_checks
from rankscope_analyzers.doctor.python_paths import python_path_checks
from rankscope_analyzers.intake.agent_client import REFUSALS, Agent, AgentError, StatusError
from rankscope_analyzers.intake.cluster import (
    UNLABELLED,
    ClusterAccess,
    agent_pods,
    placed_pod,
    warnings,
)
from rankscope_analyzers.intake.environment_skew import (
    EnvironmentDifference,
    differences,
    of_listing,
)
from rankscope_analyzers.text import check_list
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.text.name_lists import SHOWN, listed, shortened

POOL_SIZE = 32

FAILURES: tuple[type[Exception], ...] = (*connection.FAILURES, InputError)

NONE_HERE = "; without --agent or --cluster, this node's agent is asked"
"""What is added if the agent that is queried without any flag does not answer."""

NONE_LABELLED = (
    f"{UNLABELLED}: it is not installed there, or component gpu-nodes finds no node with one of its"
    " labels"
)
"""A DaemonSet that no node fits has no pods, and no event says so."""

STYLES = {"seen": "green", "not seen": "red", "off": "yellow"}


def run(options: argparse.Namespace) -> int:
    """Print what is seen and what is not.

    Raises:
        InputError: no agent knows the pod.
        rankscope_analyzers.intake.agent_client.AgentError: no agent answers.
        rankscope_analyzers.intake.cluster.ClusterError: the cluster cannot be queried for its
            agents.
    """
    kept = (
        _kept_from_starting(options.namespace, connection.cluster_access(options))
        if options.cluster
        else ()
    )
    targets = connection.chosen_targets(options, LOCAL_AGENT)
    pod = _placed_pod(options, kept, targets)
    answers = _ask(_agents(targets, pod))
    facts = [answer for answer in answers if isinstance(answer, AgentFacts)]
    silent = [str(answer) for answer in answers if isinstance(answer, AgentError)]
    silent += targets.unlisted
    if not facts:
        default = not (options.agent or options.cluster)
        raise AgentError(shortened(silent) + (NONE_HERE if default else ""))
    sections = list(_sections(facts, options.pod, python_path_checks(pod or {})))
    refused = [one.refused for one in facts if one.refused]
    if options.pod and not sections and refused:
        raise AgentError(shortened(refused))
    if options.pod and not sections:
        nodes = listed(one.node for one in facts)
        why = (
            f"no pod {options.pod!r} on {nodes}: is it scheduled there, and does the agent see"
            " pods at all? Run rankscope doctor without a pod"
        )
        raise InputError(shortened([why, *silent]))
    skew = differences(rank for one in facts for rank in of_listing(one.node, one.pods))
    if options.json:
        print_json(_object(sections, skew, silent) | {"kept_from_starting": list(kept)})
    else:
        console = open_console(no_color=options.no_color)
        _show(console, sections, skew, silent)
        for sentence in kept:
            console.print(f"Kept from starting: {sentence}.", style="yellow", markup=False)
    return 0


def _kept_from_starting(namespace: str | None, access: ClusterAccess) -> Sequence[str]:
    pods = agent_pods(namespace, access=access)
    kept = agent_startup.reasons(warnings(namespace, access), pods, time.time())
    return (*agent_startup.waiting(pods), *kept)


def _placed_pod(
    options: argparse.Namespace, kept: Sequence[str], targets: connection.Targets
) -> Mapping[str, Any] | None:
    """Return the requested pod from the API server; None without pod or cluster."""
    found = targets.cluster
    if found is None:
        return None
    if not found:
        why = "; ".join((*kept, *found.doubts)) or NONE_LABELLED
        raise InputError(f"no agent runs in the cluster: {why}")
    if not options.pod:
        return None
    pod = placed_pod(options.pod, connection.cluster_access(options))
    if pod is None:
        raise InputError(f"no pod {options.pod!r} is scheduled in the cluster")
    node = pod["spec"]["nodeName"]
    if node not in found:
        why = "; ".join(("which has no agent", *found.doubts))
        raise InputError(f"pod {options.pod!r} runs on {node}, {why}")
    return pod


def _agents(targets: connection.Targets, pod: Mapping[str, Any] | None) -> Sequence[Agent]:
    if pod is None or targets.cluster is None:
        return targets.agents()
    node = str(pod["spec"]["nodeName"])
    return [Agent(targets.cluster[node], targets.entry, node)]


def _ask(agents: Sequence[Agent]) -> Sequence[AgentFacts | AgentError]:
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        return list(pool.map(_facts, agents))


def _facts(agent: Agent) -> AgentFacts | AgentError:
    try:
        ranks, pods, refused = _protected(agent)
        return AgentFacts(
            url=agent.url,
            health=agent.json("/healthz"),
            pods=pods,
            ranks=ranks,
            page=agent.text("/metrics"),
            placed=agent.node,
            refused=refused,
        )
    except AgentError as error:
        return error


def _protected(agent: Agent) -> tuple[list[dict[str, Any]], Mapping[str, Any], str]:
    """Return ranks, pods, and why the agent gives neither: its health and page are open to all."""
    try:
        ranks = agent.json("/api/v1/ranks").get("ranks")
        pods = agent.json("/api/v1/pods")
    except StatusError as error:
        if error.status not in REFUSALS:
            raise
        return [], {}, str(error)
    rows = ranks if isinstance(ranks, list) else []
    return [rank for rank in rows if isinstance(rank, dict)], pods, ""


Section = tuple[str, Sequence[Check]]


def _sections(
    facts: Sequence[AgentFacts], wanted: str | None, of_specification: Sequence[Check]
) -> Iterator[Section]:
    for agent in facts:
        if not wanted:
            yield f"node {agent.node}", node_checks(agent)
            continue
        pod = find_pod(agent, wanted)
        if pod:
            title = f"pod {pod.get('namespace')}/{pod.get('name')} on node {agent.node}"
            yield f"{title} ({pod.get('phase')})", [*pod_checks(agent, pod), *of_specification]


def _object(
    sections: Sequence[Section], skew: Sequence[EnvironmentDifference], silent: Sequence[str]
) -> dict[str, Any]:
    return {
        "sections": [
            {"title": title, "checks": [dataclasses.asdict(check) for check in checks]}
            for title, checks in sections
        ],
        "environment_differences": [dataclasses.asdict(item) for item in skew],
        "silent_agents": list(silent),
    }


def _show(
    console: Console,
    sections: Sequence[Section],
    skew: Sequence[EnvironmentDifference],
    silent: Sequence[str],
) -> None:
    for title, checks in sections:
        console.print(check_list.table(map(_row, checks), title))
    for item in skew:
        style = "red" if item.weight == "fail" else "yellow"
        text = f"Job {item.job_id}: {item.summary}. See {item.runbook}."
        console.print(text, style=style, markup=False)
    for sentence in _few(silent):
        console.print(f"Not asked: {sentence}.", style="yellow", markup=False)


def _few(silent: Sequence[str]) -> Iterator[str]:
    """Yield sentences about the first agents that did not answer, and the number of others."""
    yield from silent[:SHOWN]
    if len(silent) > SHOWN:
        yield f"{len(silent) - SHOWN} more agents"


def _row(check: Check) -> check_list.Row:
    style = STYLES[check.state]
    return check_list.Row(check.state, style, check.source, check.detail, remedy=check.remedy)
