"""Series about ranks whose processes wait for a CPU, as the node sees them."""

from __future__ import annotations

from rankscope_agent.contract.metrics.training import RANK
from rankscope_agent.contract.model import Metric

RANK_STARVED = Metric(
    "rankscope_rank_starved_seconds_total",
    "counter",
    "Time that the thread of the rank's process which waited longest for a CPU was ready to run.",
    RANK,
)
LOADER_STARVED = Metric(
    "rankscope_loader_starved_seconds_total",
    "counter",
    "Time that the rank's child process, such as a loader worker, which waited longest for a CPU"
    " was ready to run; absent without any.",
    RANK,
)
