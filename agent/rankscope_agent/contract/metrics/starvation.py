"""Series about ranks whose processes wait for a CPU, as observed by the agent."""

from __future__ import annotations

from rankscope_agent.contract.metrics.training import RANK
from rankscope_agent.contract.model import Metric

RANK_STARVED = Metric(
    "rankscope_rank_starved_seconds_total",
    "counter",
    "Time for which the thread of the rank's process that waited longest for a CPU was ready to"
    " run.",
    RANK,
)
LOADER_STARVED = Metric(
    "rankscope_loader_starved_seconds_total",
    "counter",
    "Time for which the child process of the rank (such as a loader worker) that waited longest"
    " for a CPU was ready to run; absent if there is none.",
    RANK,
)
RANK_STOPPED = Metric(
    "rankscope_rank_stopped",
    "gauge",
    "1 while a signal (SIGSTOP) or a debugger holds the rank's process, 0 while none does.",
    RANK,
)
RANK_LAST_STOPPED = Metric(
    "rankscope_rank_last_stopped_timestamp_seconds",
    "gauge",
    "Unix time at which the rank's process was last seen held by a signal (SIGSTOP), of looks every"
    " five seconds; absent if it never was.",
    RANK,
)
