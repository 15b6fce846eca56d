"""Series about fetching PyTorch's Flight Recorder from the ranks of a node."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

SOCKETS = Metric(
    "rankscope_flight_recorder_sockets",
    "gauge",
    "Worker servers of live ranks found by the last scan.",
)
PULLS = Metric(
    "rankscope_flight_recorder_pulls_total",
    "counter",
    "Flight Recorder dumps that were fetched and parsed.",
)
FAILURES = Metric(
    "rankscope_flight_recorder_failures_total",
    "counter",
    "Failed attempts to fetch a Flight Recorder dump, by reason.",
    ("reason",),
)
SKIPPED = Metric(
    "rankscope_flight_recorder_entries_skipped_total",
    "counter",
    "Flight Recorder entries that were inconsistent and were discarded.",
)
SPENT = Metric(
    "rankscope_flight_recorder_spent_seconds_total",
    "counter",
    "Time that the agent and the ranks together spent on Flight Recorders; limited to 1 % of a"
    " core.",
)
COVERED = Metric(
    "rankscope_flight_recorder_covered_seconds_total",
    "counter",
    "Time of the rank for which all collectives are known; its rate is the share that is sampled.",
    ("job_id", "rank"),
)
