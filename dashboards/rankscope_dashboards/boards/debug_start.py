"""The debug dashboard's panels on how the job waits and starts, from the cluster's objects."""

from __future__ import annotations

from rankscope_agent.contract.metrics import cluster_jobs, job_starts
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import JOB, of
from rankscope_dashboards.parts.panels import BarGauge, Panel, now

NOT_FOLLOWED = "no such job object, or rankscope watch runs without --cluster-jobs"


def start() -> list[Panel]:
    """Return the panels."""
    return [
        BarGauge(
            title="Phases of the start",
            description="How long each phase of the newest start took, for the slowest pod or rank:"
            " in the queue, until a pod had a node, until its first container ran (image, volumes,"
            " network), in init containers; launch: from the container to the rank's process;"
            " process: until it joined the others (imports); rendezvous: joining them; nccl_init:"
            " NCCL's part of that or of the next; first_step: from there to the end of the first"
            " step. A phase that lasts is not shown.",
            unit="s",
            minimum=0,
            targets=now((worst(of(job_starts.JOB_STARTUP, JOB), "phase"), "{{cluster}} {{phase}}")),
            missing="no rank has started under the probe; queue, schedule, image and init need"
            " rankscope watch --cluster-jobs",
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
