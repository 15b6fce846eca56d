"""What agents show of the pods that exist now, without what newer pages have ceased to show.

A phase, a reason to wait or an unhealthy device is a label: once it is over, its series is missing
on newer pages, and nothing sets its last value to 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rankscope_agent.contract.metrics import agent, pods
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import BySeriesName, Observed, Series

READS: tuple[Metric, ...] = (agent.PAGE_SERIES_DROPPED, pods.POD_SOURCE_UP, pods.JOB_PODS)


def shown(observed: Observed, metric: Metric, **labels: str) -> Iterator[Series]:
    """Yield the series of a metric that the newest page with a list of the node's pods shows.

    What was shown before the agent went silent, restarted or lost its collector still counts.
    """
    for series in observed.of(metric, **labels):
        if series.times[-1] >= _newest_list(observed.by_node[series.node]):
            yield series


def _newest_list(found: BySeriesName) -> float:
    """Return the time of the newest page that shows all that is known of pods, -inf without one."""
    if any(one.last > 0 for one in found.get(agent.PAGE_SERIES_DROPPED.name, ())):
        return -math.inf
    times = [float(one.times[-1]) for one in found.get(pods.JOB_PODS.name, ())]
    for one in found.get(pods.POD_SOURCE_UP.name, ()):
        if one.labels.get("source") == "api":
            times.extend(one.times[one.values > 0][-1:].tolist())
    return max(times, default=-math.inf)
