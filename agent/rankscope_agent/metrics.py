"""The metric catalogue: every series that Rankscope exports is declared here, once.

Names carry the prefix, base units and `_total`; labels are bounded. Rank series carry `job_id` and
`rank` alone: what else there is to know about a rank stands on `rankscope_rank_info`.
"""

from __future__ import annotations

from rankscope_agent.model import Metric

RANK = ("job_id", "rank")

# The agent itself, named as node_exporter's users know it.
BUILD_INFO = Metric(
    "rankscope_build_info",
    "gauge",
    "Always 1; the labels say which agent this is.",
    ("version", "python_version"),
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
    "Wall time of the collector's last run, or how long a hanging run has lasted so far.",
    ("collector",),
)
COLLECTOR_LAST_SUCCESS = Metric(
    "rankscope_collector_last_success_timestamp_seconds",
    "gauge",
    "Unix time at which the collector last succeeded.",
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
    "Series of this collector left off the page because the agent's series limit was reached.",
    ("collector",),
)

# Training processes, as their probes record them.
RANK_INFO = Metric(
    "rankscope_rank_info",
    "gauge",
    "Always 1; where a rank of a job runs and how its time is measured.",
    ("job_id", "rank", "node", "local_rank", "world_size", "pod_uid", "launcher", "timing_source"),
)
STEPS = Metric("rankscope_steps_total", "counter", "Optimizer steps the rank finished.", RANK)
STEP_SECONDS = Metric(
    "rankscope_step_seconds_total", "counter", "Time the rank spent in finished steps.", RANK
)
DATA_SECONDS = Metric(
    "rankscope_data_seconds_total",
    "counter",
    "Time the rank was blocked waiting for input in finished steps.",
    RANK,
)
COMPUTE_SECONDS = Metric(
    "rankscope_compute_seconds_total",
    "counter",
    "Time the rank spent computing in finished steps; absent where it cannot be measured.",
    RANK,
)
SYNC_SECONDS = Metric(
    "rankscope_sync_seconds_total",
    "counter",
    "Time the rank was blocked in collectives in finished steps; absent where not measured.",
    RANK,
)
SAMPLES = Metric(
    "rankscope_samples_total", "counter", "Training samples the rank fetched from its loader.", RANK
)
LAST_STEP = Metric("rankscope_last_step", "gauge", "Number of the rank's newest step.", RANK)
LAST_STEP_TIMESTAMP = Metric(
    "rankscope_last_step_timestamp_seconds",
    "gauge",
    "Unix time at which the rank's newest step ended.",
    RANK,
)
LAST_STEP_SECONDS = Metric(
    "rankscope_last_step_seconds", "gauge", "Duration of the rank's newest step.", RANK
)
LAST_DATA_SECONDS = Metric(
    "rankscope_last_data_seconds", "gauge", "Data wait in the rank's newest step.", RANK
)
LAST_COMPUTE_SECONDS = Metric(
    "rankscope_last_compute_seconds", "gauge", "Compute time in the rank's newest step.", RANK
)
LAST_SYNC_SECONDS = Metric(
    "rankscope_last_sync_seconds", "gauge", "Sync time in the rank's newest step.", RANK
)
RANK_ALIVE = Metric(
    "rankscope_rank_alive",
    "gauge",
    "1 while the rank's training process holds its ring, 0 once it has ended.",
    RANK,
)
RECORDS_LOST = Metric(
    "rankscope_training_records_lost_total",
    "counter",
    "Step records overwritten in the rank's ring before the agent could read them.",
    RANK,
)
RECORDS_CORRUPT = Metric(
    "rankscope_training_records_corrupt_total",
    "counter",
    "Step records that contradict themselves and were left out.",
)
RINGS = Metric("rankscope_training_rings", "gauge", "Probe rings the agent reads now.")
RINGS_REJECTED = Metric(
    "rankscope_training_rings_rejected",
    "gauge",
    "Files in ring directories that the agent refuses to read, by reason.",
    ("reason",),
)
STEP_LATENCY = Metric(
    "rankscope_step_latency_seconds",
    "histogram",
    "Step durations of the job's ranks on this node.",
    ("job_id",),
)
SYNC_TIME = Metric(
    "rankscope_sync_time_seconds",
    "histogram",
    "Time per step that the job's ranks on this node were blocked in collectives.",
    ("job_id",),
)

CATALOGUE: tuple[Metric, ...] = (
    BUILD_INFO,
    COLLECTOR_SUCCESS,
    COLLECTOR_DURATION,
    COLLECTOR_LAST_SUCCESS,
    SNAPSHOT_TIMESTAMP,
    SERIES_DROPPED,
    RANK_INFO,
    STEPS,
    STEP_SECONDS,
    DATA_SECONDS,
    COMPUTE_SECONDS,
    SYNC_SECONDS,
    SAMPLES,
    LAST_STEP,
    LAST_STEP_TIMESTAMP,
    LAST_STEP_SECONDS,
    LAST_DATA_SECONDS,
    LAST_COMPUTE_SECONDS,
    LAST_SYNC_SECONDS,
    RANK_ALIVE,
    RECORDS_LOST,
    RECORDS_CORRUPT,
    RINGS,
    RINGS_REJECTED,
    STEP_LATENCY,
    SYNC_TIME,
)
