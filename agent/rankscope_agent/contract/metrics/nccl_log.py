"""Series from the lines of NCCL and PyTorch in the logs of training pods."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

# Both labels are empty outside of pods.
LOG_POD = ("pod_namespace", "pod_name")
NCCL_CONNECTIONS = Metric(
    "rankscope_nccl_channel_connections",
    "gauge",
    "Distinct NCCL connections (pair of ranks, direction, transport) that the pod's ranks logged.",
    (*LOG_POD, "transport", "gdr", "scope"),
)
NCCL_SOCKET_FALLBACK = Metric(
    "rankscope_nccl_socket_fallback_state",
    "gauge",
    "1 if NCCL carries data between nodes over TCP sockets, 0 if not, -1 if the log does not"
    " show it.",
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
    "Ranks, summed over communicators, whose initialisation the pod's processes started.",
    LOG_POD,
)
NCCL_RANKS_INITIALIZED = Metric(
    "rankscope_nccl_comm_ranks_initialized",
    "gauge",
    "Ranks, summed over communicators, whose initialisation the pod's processes completed.",
    LOG_POD,
)
NCCL_CHANNELS = Metric(
    "rankscope_nccl_comm_channels",
    "gauge",
    "Channels for collectives in the largest communicator of the pod's processes, the lowest and"
    " the highest number that its ranks logged; they must be equal on all ranks.",
    (*LOG_POD, "bound"),
)
NCCL_INIT_SECONDS = Metric(
    "rankscope_nccl_comm_init_seconds",
    "gauge",
    "Duration of the pod's slowest communicator initialisation by phase; bootstrap is the wait"
    " for peers.",
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
    "InfiniBand completion errors that NCCL logged, by adapter of this node and status.",
    (*LOG_POD, "device", "status"),
)
NCCL_TIMEOUTS = Metric(
    "rankscope_nccl_collective_timeouts_total",
    "counter",
    "Collectives that PyTorch's watchdog gave up on, each counted once per rank.",
    (*LOG_POD, "op"),
)
NCCL_UNPARSED = Metric(
    "rankscope_nccl_log_unparsed_total",
    "counter",
    "Log records that look like NCCL's but could not be parsed or stored.",
    LOG_POD,
)
NCCL_LAST_LINE = Metric(
    "rankscope_nccl_log_last_line_timestamp_seconds",
    "gauge",
    "Unix time at which the agent last read a line from NCCL or PyTorch's watchdog in the pod's"
    " logs; outside of pods, at which it was written at the latest.",
    LOG_POD,
)
NCCL_LAST_WARNING = Metric(
    "rankscope_nccl_last_warning_timestamp_seconds",
    "gauge",
    "Unix time at which the agent last read a new NCCL warning in the pod's logs; outside of pods,"
    " at which it was written at the latest.",
    LOG_POD,
)
NCCL_LOGS = Metric("rankscope_nccl_logs", "gauge", "Logs that the agent is following.")
NCCL_LOGS_REJECTED = Metric(
    "rankscope_nccl_logs_rejected",
    "gauge",
    "Logs that the agent does not read, by reason; absent if there are none.",
    ("reason",),
)
NCCL_LOG_LAG = Metric(
    "rankscope_nccl_log_lag_bytes",
    "gauge",
    "Bytes of logs that have been written but not read yet.",
)
NCCL_LOG_LAG_LINES = Metric(
    "rankscope_nccl_log_lag_lines",
    "gauge",
    "Approximate number of lines in these bytes, estimated from the length of the next lines;"
    " archives are not counted.",
)
NCCL_LOG_SKIPPED = Metric(
    "rankscope_nccl_log_skipped_bytes_total",
    "counter",
    "Bytes of logs that the agent could not read because they were rotated away first or"
    " damaged in an archive.",
)
