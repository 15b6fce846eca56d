"""Series of `rankscope watch` about the canary: whether a known slow rank is still named."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

CANARY_STEP = Metric(
    "rankscope_canary_step_timestamp_seconds",
    "gauge",
    "Unix time of the newest step of the canary that the watch has judged; absent until there is"
    " one.",
    ("job_id",),
)
CANARY_NAMED = Metric(
    "rankscope_canary_named_timestamp_seconds",
    "gauge",
    "Unix time of the newest step of the canary up to which the watch named the rank, by what step"
    " times show of it. The canary's slow rank is 2, its symptom gpu_compute.",
    ("job_id", "symptom", "rank"),
)
