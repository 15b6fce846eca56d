"""The alerts, one table per subject.

A new alert is a row in one of the tables and docs/runbooks/NAME.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rankscope_analyzers.configuration.thresholds import DEFAULTS
from rankscope_dashboards.rules.alerts import (
    canary,
    checkpoints,
    cluster,
    gpu,
    host,
    job_status,
    links,
    nccl,
    objectives,
    spending,
    step_stream,
    storage,
    training,
)
from rankscope_dashboards.rules.alerts.alert import Alert, Group
from rankscope_dashboards.rules.alerts.limits import with_limits

_GROUPS: tuple[Group, ...] = (
    *training.GROUPS,
    *checkpoints.GROUPS,
    *storage.GROUPS,
    *job_status.GROUPS,
    *nccl.GROUPS,
    *gpu.GROUPS,
    *links.GROUPS,
    *host.GROUPS,
    *cluster.GROUPS,
    *objectives.GROUPS,
    *spending.GROUPS,
    *canary.GROUPS,
    *step_stream.GROUPS,
)


def groups(thresholds: Mapping[str, float] = DEFAULTS) -> tuple[Group, ...]:
    """Return all groups.

    Args:
        thresholds: all that rankscope.yaml may set, by name.
    """
    return tuple(
        replace(group, alerts=tuple(with_limits(one, thresholds) for one in group.alerts))
        for group in _GROUPS
    )


GROUPS: tuple[Group, ...] = groups()

ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)
