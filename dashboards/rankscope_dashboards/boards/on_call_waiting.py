"""The on-call dashboard's tables of jobs that wait or failed, from the cluster's objects."""

from __future__ import annotations

from rankscope_agent.contract.metrics import cluster_jobs
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import CLUSTER, JOB, MANY, of, with_clusters
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import columns, override, texts
from rankscope_dashboards.parts.panels import NEUTRAL, Panel, Table, rows

SINCE = texts({0: ("unknown", NEUTRAL)})
"""Some notices do not give a start time."""


def panels(runbooks: str) -> list[Panel]:
    """Return the tables."""
    return [queued(runbooks), failed(), quotas(runbooks), notices(runbooks)]


def queued(runbooks: str) -> Panel:
    """Return the table of jobs that wait, by what they wait for."""
    waits = worst(of(cluster_jobs.JOB_PENDING, JOB), "job_id", "reason")
    return Table(
        title="Jobs that wait",
        description="Jobs that wait in a queue or whose pods wait, the longest first, by reason:"
        " quota, gang, pvc (volume), no_gpu, affinity, taint, resources, image, config.",
        unit="string",
        targets=rows(with_clusters(f"topk({MANY}, {waits} > 60)")),
        transformations=columns(
            shared.JOB_COLUMNS | {"reason": "waits for", "Value": "waiting time"}
        ),
        overrides=[override("waiting time", {"unit": "s"}), *shared.to_debug()],
        largest_first="waiting time",
        widths={"waiting time": 120},
        missing="no job waits, or rankscope watch runs without --cluster-jobs",
        links=[
            links.runbook(runbooks, "RankscopeJobPending"),
            links.runbook(runbooks, "RankscopeGangPartial"),
            links.runbook(runbooks, "RankscopeJobRequeued"),
        ],
        width=12,
        height=6,
    )


def failed() -> Panel:
    """Return the table of jobs that failed within the last hour, with the cause."""
    causes = worst(of(cluster_jobs.JOB_FAILURE_CAUSE, JOB), "job_id", "cause")
    return Table(
        title="Jobs that failed within an hour",
        description="Jobs whose object says that they failed, and why, as far as it or its pods"
        " tell.",
        targets=rows(with_clusters(f"topk({MANY}, {causes})")),
        transformations=columns(shared.JOB_COLUMNS | {"cause": "cause"}),
        overrides=shared.to_debug(),
        missing="no job failed, or rankscope watch runs without --cluster-jobs",
        width=12,
        height=6,
    )


def quotas(runbooks: str) -> Panel:
    """Return the table of quotas by usage."""
    labels = ("quota_kind", "job_namespace", "quota", "resource")
    used = worst(of(cluster_jobs.QUOTA_USED, CLUSTER), *labels)
    limit = worst(of(cluster_jobs.QUOTA_LIMIT, CLUSTER), *labels)
    return Table(
        title="Fullest quotas",
        description="What is used of ResourceQuotas and of Kueue's ClusterQueues, the fullest"
        " first; a ClusterQueue that borrows uses more than its own.",
        unit="string",
        targets=rows(f"topk({MANY}, {used} / ({limit} > 0) > 0.5)"),
        transformations=columns(
            {
                **shared.CLUSTER_COLUMN,
                "quota_kind": "kind",
                "job_namespace": "namespace",
                "quota": "quota",
                "resource": "resource",
                "Value": "used",
            }
        ),
        overrides=[override("used", {"unit": "percentunit"})],
        largest_first="used",
        widths={"resource": 180, "used": 80},
        missing="no quota is half used, or rankscope watch runs without --cluster-jobs",
        links=[links.runbook(runbooks, "RankscopeQuotaWait")],
        width=12,
        height=6,
    )


def notices(runbooks: str) -> Panel:
    """Return the table of nodes that harm their jobs or are about to go."""
    since = f"{worst(of(cluster_jobs.JOB_NODE_NOTICE, JOB), 'job_id', 'node', 'notice')} * 1000"
    return Table(
        title="Notices of jobs' nodes",
        description="Nodes of jobs that are not ready, under pressure, cordoned or about to go:"
        " spot and maintenance notices, and autoscalers.",
        unit="string",
        targets=rows(with_clusters(f"topk({MANY}, {since})")),
        transformations=columns(
            shared.JOB_COLUMNS | {"node": "node", "notice": "says", "Value": "since"}
        ),
        overrides=[
            override("since", {"unit": "dateTimeFromNow", "mappings": SINCE}),
            *shared.to_debug(),
        ],
        missing="no node of a job has any, or rankscope watch runs without --cluster-jobs",
        links=[links.runbook(runbooks, "RankscopeJobPreempted")],
        width=12,
        height=6,
    )
