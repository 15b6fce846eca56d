"""Series from NCCL's RAS, which covers a whole job and not only this node."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

RAS_INFO = Metric(
    "rankscope_nccl_ras_info",
    "gauge",
    "Always 1; the NCCL version of the job that answers on the node's RAS port.",
    ("version",),
)
RAS_COMMUNICATORS = Metric(
    "rankscope_nccl_ras_communicators",
    "gauge",
    "Communicators of the job that RAS reports on.",
)
RAS_RANKS = Metric(
    "rankscope_nccl_ras_ranks",
    "gauge",
    "Ranks that the job's largest communicator should have.",
)
RAS_MISSING_RANKS = Metric(
    "rankscope_nccl_ras_missing_ranks",
    "gauge",
    "Ranks that sent no data to RAS, in the communicator with the most of them.",
)
RAS_DEAD_PROCESSES = Metric(
    "rankscope_nccl_ras_dead_processes",
    "gauge",
    "Processes of the job that RAS has given up on, which it does after a minute without contact.",
)
RAS_FAILED_RANKS = Metric(
    "rankscope_nccl_ras_failed_ranks",
    "gauge",
    "Ranks with an asynchronous error or an abort, in the communicator with the most of them.",
)
RAS_TIMEOUTS = Metric(
    "rankscope_nccl_ras_timeouts",
    "gauge",
    "Processes that did not answer RAS in time during the last query.",
)
RAS_LAG = Metric(
    "rankscope_nccl_ras_collective_lag_operations",
    "gauge",
    "Launches by which the last rank of a communicator lags behind the first; 1 is normal.",
    ("op",),
)
RAS_LAGGING_RANK = Metric(
    "rankscope_nccl_ras_lagging_rank",
    "gauge",
    "The rank that lags furthest behind, the lowest if there are several; absent if that is in a"
    " communicator smaller than the largest, whose numbers are not those of the job.",
)
RAS_LAGGING_RANKS = Metric(
    "rankscope_nccl_ras_lagging_ranks",
    "gauge",
    "Ranks of the largest communicator that lag equally far behind.",
)
RAS_QUERY_SECONDS = Metric(
    "rankscope_nccl_ras_query_seconds",
    "gauge",
    "Duration of the last query; RAS waits for processes that do not answer.",
)
RAS_LAST_QUERY = Metric(
    "rankscope_nccl_ras_last_query_timestamp_seconds",
    "gauge",
    "Unix time of the query that returned these values.",
)
