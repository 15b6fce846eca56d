"""Series about the agent itself, named like node_exporter's."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

BUILD_INFO = Metric(
    "rankscope_build_info",
    "gauge",
    "Always 1; version of this agent, and the node that it simulates, if any.",
    ("version", "python_version", "simulated"),
)
COLLECTOR_SUCCESS = Metric(
    "rankscope_collector_success",
    "gauge",
    "1 if the collector's last run finished in time and found its source, else 0.",
    ("collector",),
)
COLLECTOR_DURATION = Metric(
    "rankscope_collector_duration_seconds",
    "gauge",
    "Wall time of the collector's last run, or how long a hanging run has lasted so far; absent"
    " if the collector has no source.",
    ("collector",),
)
COLLECTOR_LAST_SUCCESS = Metric(
    "rankscope_collector_last_success_timestamp_seconds",
    "gauge",
    "Unix time of the collector's last successful run; exported only if its latest run failed.",
    ("collector",),
)
SNAPSHOT_TIMESTAMP = Metric(
    "rankscope_snapshot_timestamp_seconds",
    "gauge",
    "Unix time at which the values on this page were assembled.",
)
INVALID_SAMPLES = Metric(
    "rankscope_invalid_samples",
    "gauge",
    "Samples of the collector's last run that no page can carry, such as one with a label of more"
    " than 1,024 bytes, and that were left out; absent if there are none.",
    ("collector",),
)
SERIES_DROPPED = Metric(
    "rankscope_series_dropped",
    "gauge",
    "Series of this collector dropped from the page because the agent reached its series limit;"
    " absent if there are none.",
    ("collector",),
)
PAGE_SERIES_DROPPED = Metric(
    "rankscope_page_series_dropped",
    "gauge",
    "Series of all collectors that were dropped from the page.",
)
COLLECTOR_FAILING = Metric(
    "rankscope_collector_failing",
    "gauge",
    "Always 1; the collector fails with an error, or lost its source within the last six hours,"
    " unless that source comes and goes with jobs.",
    ("collector",),
)
