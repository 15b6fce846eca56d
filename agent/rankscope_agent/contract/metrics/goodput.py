"""Series of `rankscope watch` about where the GPU time of jobs went."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

_PARTS = (
    "part is one of productive, replayed, data, straggler, slowdown, sync, checkpoint, evaluation,"
    " startup, restart, hang, held, idle, unobserved, unexplained; they add up to all of it."
)
JOB_GPU_SECONDS = Metric(
    "rankscope_job_gpu_seconds_total",
    "counter",
    f"GPU time that the job held while it was watched, by where it went; {_PARTS}",
    ("job_id", "part"),
)
PROJECT_GPU_SECONDS = Metric(
    "rankscope_project_gpu_seconds_total",
    "counter",
    "The same of all jobs of a project and class, those that have ended included; empty where pods"
    " have no such labels, other for more than 64 pairs.",
    ("project", "job_class", "part"),
)
