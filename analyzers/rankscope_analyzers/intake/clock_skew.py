"""Nodes whose clocks are minutes or hours off: their time stamps are converted to our time.

Offsets of milliseconds, which matter within a step, are the subject of `steps.clocks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from rankscope_agent.contract.metrics import agent as metrics
from rankscope_analyzers.intake.observed import BySeriesName, Observed
from rankscope_analyzers.steps import far_clocks
from rankscope_analyzers.steps.far_clocks import Apart
from rankscope_analyzers.steps.job_records import JobRecords

TOLERANCE_SECONDS = 60.0
"""Seconds. An agent's page may be a collection interval old, and a scrape another; synchronised
clocks differ by less than a second."""

DATED = "_timestamp_seconds"
"""Suffixes of the names of series whose values are Unix times."""


def ahead(observed: Observed) -> Mapping[str, float]:
    """Return by how many seconds nodes' clocks are ahead of ours, for those that are far off."""
    found = {
        series.node: series.last - float(series.times[-1])
        for series in observed.of(metrics.SNAPSHOT_TIMESTAMP)
    }
    return {node: by for node, by in found.items() if TOLERANCE_SECONDS < abs(by) < math.inf}


def of_series(observed: Observed, by_node: Mapping[str, float]) -> Observed:
    """Return the series with the times of far-off nodes converted to ours."""
    if not by_node:
        return observed
    moved = {node: _moved(observed.by_node[node], by) for node, by in by_node.items()}
    return replace(observed, by_node={**observed.by_node, **moved})


def _moved(found: BySeriesName, by: float) -> BySeriesName:
    return {
        name: [replace(one, values=one.values - by) for one in several]
        if name.endswith(DATED)
        else several
        for name, several in found.items()
    }


def of_records(job: JobRecords, by_node: Mapping[str, float]) -> JobRecords:
    """Return step records with the times of far-off nodes converted to ours."""
    if not by_node:
        return job
    apart = Apart(nodes=by_node)
    start = None if job.start is None else far_clocks.moved(job.start, apart)
    return replace(job, records=far_clocks.moved(job.records, apart), start=start)
