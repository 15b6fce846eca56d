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

# NCCL's and PyTorch's words in the logs of training pods; both labels are empty outside of pods.
LOG_POD = ("pod_namespace", "pod_name")
NCCL_CONNECTIONS = Metric(
    "rankscope_nccl_channel_connections",
    "gauge",
    "Distinct NCCL connections (pair of ranks, direction, transport) that the pod's ranks printed.",
    (*LOG_POD, "transport", "gdr", "scope"),
)
NCCL_SOCKET_FALLBACK = Metric(
    "rankscope_nccl_socket_fallback_state",
    "gauge",
    "1 if NCCL carries data between nodes over TCP sockets, 0 if not, -1 if the log cannot tell.",
    (*LOG_POD, "reason"),
)
NCCL_NET_INFO = Metric(
    "rankscope_nccl_net_info",
    "gauge",
    "Always 1; the network that NCCL selected, which need not be in use, and its version.",
    (*LOG_POD, "pod_uid", "net", "plugin", "version"),
)
NCCL_GDR_MISSING = Metric(
    "rankscope_nccl_gdr_missing_connections",
    "gauge",
    "Connections over RDMA networks without GPUDirect RDMA.",
    LOG_POD,
)
NCCL_RANKS_EXPECTED = Metric(
    "rankscope_nccl_comm_ranks_expected",
    "gauge",
    "Ranks of communicators, summed over these, that the pod's processes began to initialise.",
    LOG_POD,
)
NCCL_RANKS_INITIALIZED = Metric(
    "rankscope_nccl_comm_ranks_initialized",
    "gauge",
    "Ranks of communicators, summed over these, whose initialisation the pod's processes ended.",
    LOG_POD,
)
NCCL_INIT_SECONDS = Metric(
    "rankscope_nccl_comm_init_seconds",
    "gauge",
    "Time of the pod's slowest communicator start by phase; bootstrap is the wait for peers.",
    (*LOG_POD, "phase"),
)
NCCL_WARNINGS = Metric(
    "rankscope_nccl_warnings_total",
    "counter",
    "NCCL warnings and PyTorch watchdog messages by code.",
    (*LOG_POD, "code"),
)
NCCL_IB_ERRORS = Metric(
    "rankscope_nccl_ib_errors_total",
    "counter",
    "InfiniBand completion errors that NCCL printed, by adapter of this node and status.",
    (*LOG_POD, "device", "status"),
)
NCCL_TIMEOUTS = Metric(
    "rankscope_nccl_collective_timeouts_total",
    "counter",
    "Collectives that a rank's PyTorch watchdog gave up on, each counted once per rank.",
    (*LOG_POD, "op"),
)
NCCL_UNPARSED = Metric(
    "rankscope_nccl_log_unparsed_total",
    "counter",
    "Records that look like NCCL's and could not be read or kept.",
    LOG_POD,
)
NCCL_LAST_LINE = Metric(
    "rankscope_nccl_log_last_line_timestamp_seconds",
    "gauge",
    "Unix time at which the agent last read a line of NCCL or its watchdog in the pod's logs.",
    LOG_POD,
)
NCCL_LAST_WARNING = Metric(
    "rankscope_nccl_last_warning_timestamp_seconds",
    "gauge",
    "Unix time at which the agent last read a new NCCL warning in the pod's logs.",
    LOG_POD,
)
NCCL_LOGS = Metric("rankscope_nccl_logs", "gauge", "Logs that the agent follows now.")
NCCL_LOGS_REJECTED = Metric(
    "rankscope_nccl_logs_rejected",
    "gauge",
    "Logs that the agent does not read, by reason.",
    ("reason",),
)
NCCL_LOG_LAG = Metric(
    "rankscope_nccl_log_lag_bytes",
    "gauge",
    "Bytes of logs that are there and not read yet.",
)
NCCL_LOG_SKIPPED = Metric(
    "rankscope_nccl_log_skipped_bytes_total",
    "counter",
    "Bytes of logs that were rotated away before the agent could read them.",
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
    NCCL_CONNECTIONS,
    NCCL_SOCKET_FALLBACK,
    NCCL_NET_INFO,
    NCCL_GDR_MISSING,
    NCCL_RANKS_EXPECTED,
    NCCL_RANKS_INITIALIZED,
    NCCL_INIT_SECONDS,
    NCCL_WARNINGS,
    NCCL_IB_ERRORS,
    NCCL_TIMEOUTS,
    NCCL_UNPARSED,
    NCCL_LAST_LINE,
    NCCL_LAST_WARNING,
    NCCL_LOGS,
    NCCL_LOGS_REJECTED,
    NCCL_LOG_LAG,
    NCCL_LOG_SKIPPED,
)
