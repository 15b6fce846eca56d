"""The on-call dashboard's tables of jobs that wait or failed, by the cluster's objects."""

from __future__ import annotations

from rankscope_agent.contract.metrics import cluster_jobs
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import JOB, MANY, of, with_clusters
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import columns, override
from rankscope_dashboards.parts.panels import Panel, Table, rows


def panels(runbooks: str) -> list[Panel]:
    """Return the tables."""
    return [queued(runbooks), failed()]


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
