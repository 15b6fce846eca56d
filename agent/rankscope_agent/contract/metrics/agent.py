"""Series about the agent itself, named as node_exporter's users know them."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

BUILD_INFO = Metric(
    "rankscope_build_info",
    "gauge",
    "Always 1; which agent this is, and which node it makes up if it does.",
    ("version", "python_version", "simulated"),
)
COLLECTOR_SUCCESS = Metric(
    "rankscope_collector_success",
    "gauge",
    "1 if the collector's last run ended in time and had its source, else 0.",
    ("collector",),
)
COLLECTOR_DURATION = Metric(
    "rankscope_collector_duration_seconds",
    "gauge",
    "Wall time of the collector's last run, or how long a hanging run has lasted so far; absent"
    " where it has no source.",
    ("collector",),
)
COLLECTOR_LAST_SUCCESS = Metric(
    "rankscope_collector_last_success_timestamp_seconds",
    "gauge",
    "Unix time at which the collector last succeeded; only where its last run did not.",
    ("collector",),
)
SNAPSHOT_TIMESTAMP = Metric(
    "rankscope_snapshot_timestamp_seconds",
    "gauge",
    "Unix time at which the values on this page were put together.",
)
SERIES_DROPPED = Metric(
    "rankscope_series_dropped",
    "gauge",
    "Series of this collector left off the page because the agent's series limit was reached;"
    " absent without any.",
    ("collector",),
)
PAGE_SERIES_DROPPED = Metric(
    "rankscope_page_series_dropped",
    "gauge",
    "Series of all collectors together that were left off the page.",
)
COLLECTOR_FAILING = Metric(
    "rankscope_collector_failing",
    "gauge",
    "Always 1; collectors that fail with an error, or whose source has gone within six hours,"
    " unless it comes and goes with jobs.",
    ("collector",),
)
