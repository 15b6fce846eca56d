"""The alerts, one table per subject.

A new alert is a row in one of the tables and docs/runbooks/NAME.md.
"""

from __future__ import annotations

from rankscope_dashboards.rules.alerts import (
    checkpoints,
    cluster,
    gpu,
    host,
    job_status,
    links,
    nccl,
    storage,
    training,
)
from rankscope_dashboards.rules.alerts.alert import Alert, Group

GROUPS: tuple[Group, ...] = (
    *training.GROUPS,
    *checkpoints.GROUPS,
    *storage.GROUPS,
    *job_status.GROUPS,
    *nccl.GROUPS,
    *gpu.GROUPS,
    *links.GROUPS,
    *host.GROUPS,
    *cluster.GROUPS,
)

ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)
