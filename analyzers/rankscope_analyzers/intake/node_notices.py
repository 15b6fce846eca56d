"""Notices of nodes that end or harm the jobs on them: from an API server, or from Prometheus.

Prometheus has those from a watch that follows the cluster's jobs (`--cluster-jobs`), by job. The
API server has those of all nodes, as of now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rankscope_agent.contract.metrics.cluster_jobs import JOB_NODE_NOTICE, WATCH_OBJECTS
from rankscope_analyzers.intake.cluster import ClusterAccess, ClusterError
from rankscope_analyzers.intake.kubernetes_api import OK, Api, KubernetesApi, NoAnswerError
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError
from rankscope_analyzers.intake.prometheus_instances import LARGEST_WINDOW_SECONDS
from rankscope_analyzers.intake.prometheus_nodes import POINTS, SMALLEST_STEP_SECONDS
from rankscope_analyzers.workloads import nodes
from rankscope_analyzers.workloads.nodes import NodeFacts, with_events

ABOUT = "notices of nodes"

PAGE = "500"
"""Objects listed in one response: a node with its images has some 20 KB."""

MOST_PAGES = 40
ANSWER_SECONDS = 20.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeNotices:
    """Notices as series: the Unix time since when each holds, 0 if unknown.

    Args:
        series: those from a watch name the job, those from an API server do not.
        not_read: what could not be read, as sentences.
    """

    series: tuple[Series, ...] = ()
    not_read: tuple[str, ...] = ()


def from_cluster(access: ClusterAccess, now: float) -> NodeNotices:
    """Query the API server in the user's kubeconfig for all nodes."""
    try:
        return of_api(KubernetesApi(access), now)
    except ClusterError as error:
        return NodeNotices(not_read=(f"{ABOUT}: {error}",))


def of_api(api: Api, now: float) -> NodeNotices:
    """Return the notices of all nodes as of now; what is refused is listed.

    Args:
        api: of the cluster.
        now: Unix time.
    """
    try:
        found = tuple(_listed(api, "nodes", {}, nodes.read))
    except ClusterError as error:
        return NodeNotices(not_read=(f"{ABOUT}: {error}",))
    not_read: tuple[str, ...] = ()
    try:
        selector = {"fieldSelector": "involvedObject.kind=Node"}
        found = with_events(found, list(_listed(api, "events", selector, nodes.event)))
    except ClusterError as error:
        not_read = (f"{ABOUT} by Events: {error}",)
    return NodeNotices(tuple(one for node in found for one in _of_node(node, now)), not_read)


def _of_node(node: NodeFacts, now: float) -> Iterator[Series]:
    for notice, since in node.notices.items():
        labels = {"node": node.name, "notice": notice}
        value = np.array([since or 0.0])
        yield Series(node.name, JOB_NODE_NOTICE.name, labels, np.array([now]), value)


def _listed(
    api: Api,
    plural: str,
    query: Mapping[str, str],
    read: Callable[[Mapping[str, Any]], tuple[str, T] | None],
) -> Iterator[T]:
    """Yield all objects of a kind, page by page.

    Raises:
        ClusterError: the API server does not answer, refuses, or has too many.
    """
    following = ""
    for _ in range(MOST_PAGES):
        try:
            more = {"continue": following} if following else {}
            answer = api.get(f"/api/v1/{plural}", {**query, "limit": PAGE, **more}, ANSWER_SECONDS)
        except NoAnswerError as error:
            raise ClusterError(str(error)) from None
        if answer.status != OK:
            why = f"the API server answers {answer.status} to verb list of {plural}"
            raise ClusterError(f"{why} in all namespaces" if plural == "events" else why)
        for item in answer.body.get("items") or ():
            value = read(item) if isinstance(item, dict) else None
            if value is not None:
                yield value[1]
        metadata = answer.body.get("metadata")
        following = str((metadata.get("continue") if isinstance(metadata, dict) else "") or "")
        if not following:
            return
    raise ClusterError(f"there are more than {MOST_PAGES * int(PAGE):,} {plural}")


def from_prometheus(
    server: Prometheus, job_id: str | None, since: float, now: float
) -> NodeNotices:
    """Query for what a watch has exported within the newest hour.

    Args:
        server: to query.
        job_id: the job to query, None for all.
        since: Unix time before which nothing is requested.
        now: Unix time of the end.
    """
    start = max(since, now - LARGEST_WINDOW_SECONDS)
    step = max(SMALLEST_STEP_SECONDS, (now - start) / POINTS)
    which = "" if job_id is None else "{job_id=" + json.dumps(job_id) + "}"
    # A spot notice lasts two minutes, less than a step.
    seen = f"max_over_time({JOB_NODE_NOTICE.name}{which}[{int(step) + 1}s])"
    conditions = f'group by (condition) ({WATCH_OBJECTS.name}{{resource="nodes"}})'
    try:
        matrix = server.range(f"max by (job_id, node, notice) ({seen})", start, now, step)
        known = {labels.get("condition", "") for labels, _ in server.instant(conditions, now)}
    except PrometheusError as error:
        return NodeNotices(not_read=(f"{ABOUT}: {error}",))
    series = []
    for labels, row in zip(matrix.labels, matrix.values, strict=True):
        there = np.isfinite(row)
        if there.any() and labels.get("node"):
            name = JOB_NODE_NOTICE.name
            times, values = matrix.times[there], row[there]
            series.append(Series(labels["node"], name, dict(labels), times, values))
    hidden = known and "followed" not in known
    why = f"{ABOUT}: to rankscope watch nodes are {', '.join(sorted(known))}"
    return NodeNotices(tuple(series), (why,) if hidden else ())
