"""The metric catalogue: every series that Rankscope exports is declared in this package, once.

One module per subject. Names carry the prefix, base units and `_total`; labels are bounded. Rank
series carry `job_id` and `rank` alone: what else there is to know about a rank stands on
`rankscope_rank_info`.
"""

from __future__ import annotations

from rankscope_agent.contract.metrics import (
    agent,
    flight_recorder,
    gpu,
    host,
    inspector,
    job_logs,
    kernel,
    nccl,
    netdev,
    pods,
    ras,
    rdma,
    starvation,
    summary,
    topology,
    training,
    watch,
)
from rankscope_agent.contract.model import Metric

SUBJECTS = (
    agent,
    training,
    starvation,
    flight_recorder,
    nccl,
    ras,
    rdma,
    netdev,
    topology,
    host,
    kernel,
    job_logs,
    inspector,
    pods,
    gpu,
    summary,
    watch,
)
"""The modules of the catalogue, in the order in which docs/metrics.md shows them."""

CATALOGUE: tuple[Metric, ...] = tuple(
    value for subject in SUBJECTS for value in vars(subject).values() if isinstance(value, Metric)
)
