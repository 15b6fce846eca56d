"""Series about fetching PyTorch's Flight Recorder from the ranks of a node."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

SOCKETS = Metric(
    "rankscope_flight_recorder_sockets",
    "gauge",
    "Worker servers of live ranks found at the last look.",
)
PULLS = Metric(
    "rankscope_flight_recorder_pulls_total", "counter", "Flight Recorders fetched and understood."
)
FAILURES = Metric(
    "rankscope_flight_recorder_failures_total",
    "counter",
    "Worker servers that gave no Flight Recorder, by reason.",
    ("reason",),
)
SKIPPED = Metric(
    "rankscope_flight_recorder_entries_skipped_total",
    "counter",
    "Entries of Flight Recorders that contradict themselves and were left out.",
)
SPENT = Metric(
    "rankscope_flight_recorder_spent_seconds_total",
    "counter",
    "Time spent on Flight Recorders by agent and ranks together; bounded to 1 % of a core.",
)
COVERED = Metric(
    "rankscope_flight_recorder_covered_seconds_total",
    "counter",
    "Time of the rank of which all collectives are known; its rate is the share that is sampled.",
    ("job_id", "rank"),
)
