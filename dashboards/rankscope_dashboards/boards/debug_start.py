"""The debug dashboard's panels on how the job waits and starts, by the cluster's objects."""

from __future__ import annotations

from rankscope_agent.contract.metrics import cluster_jobs
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import JOB, of
from rankscope_dashboards.parts.panels import BarGauge, Panel, now

NOT_FOLLOWED = "no such job object, or rankscope watch runs without --cluster-jobs"


def start() -> list[Panel]:
    """Return the panels."""
    return [
        BarGauge(
            title="Phases of the start",
            description="How long each phase took for the slowest of the job's newest pods: in the"
            " queue, until it had a node, until its first container ran (image, volumes, network),"
            " and in init containers. A phase that lasts is not shown.",
            unit="s",
            minimum=0,
            targets=now(
                (worst(of(cluster_jobs.JOB_STARTUP, JOB), "phase"), "{{cluster}} {{phase}}")
            ),
            missing=NOT_FOLLOWED,
        ),
        BarGauge(
            title="Replicas",
            description="Replicas of the job by role, as its object counts them.",
            minimum=0,
            decimals=0,
            targets=now(
                (
                    worst(of(cluster_jobs.JOB_REPLICAS, JOB), "role", "state"),
                    "{{cluster}} {{role}} {{state}}",
                )
            ),
            missing=NOT_FOLLOWED,
        ),
    ]
