"""Series from what training frameworks print about their steps in the logs of training pods."""

from __future__ import annotations

from rankscope_agent.contract.metrics.nccl_log import LOG_POD
from rankscope_agent.contract.model import Metric

LOG_FRAMEWORK = (*LOG_POD, "framework", "source")

JOB_LOG_STEP = Metric(
    "rankscope_job_log_last_step",
    "gauge",
    "Newest step that the job's framework printed; for Lightning the batch of its epoch.",
    LOG_FRAMEWORK,
)
JOB_LOG_STEP_SECONDS = Metric(
    "rankscope_job_log_step_seconds",
    "gauge",
    "Time of a step of the whole job by its log; it tells nothing about single ranks.",
    LOG_FRAMEWORK,
)
JOB_LOG_SAMPLES_RATE = Metric(
    "rankscope_job_log_samples_per_second",
    "gauge",
    "Samples per second of the whole job by its log.",
    LOG_FRAMEWORK,
)
JOB_LOG_GPU_FLOPS = Metric(
    "rankscope_job_log_gpu_flops_per_second",
    "gauge",
    "Floating-point operations per GPU and second by the job's log.",
    LOG_FRAMEWORK,
)
JOB_LOG_LOSS = Metric(
    "rankscope_job_log_loss",
    "gauge",
    "Newest training loss that the job printed; absent while that is infinite or no number.",
    LOG_FRAMEWORK,
)
JOB_LOG_STEP_LINES = Metric(
    "rankscope_job_log_step_lines_total",
    "counter",
    "Lines about steps that the agent read in the pod's logs.",
    LOG_FRAMEWORK,
)
JOB_LOG_NONFINITE_LOSSES = Metric(
    "rankscope_job_log_nonfinite_losses_total",
    "counter",
    "Training losses in the pod's logs that were infinite or no number.",
    LOG_FRAMEWORK,
)
JOB_LOG_SKIPPED_STEPS = Metric(
    "rankscope_job_log_skipped_steps_total",
    "counter",
    "Steps without an update of the weights by the job's log.",
    LOG_FRAMEWORK,
)
JOB_LOG_LAST_LINE = Metric(
    "rankscope_job_log_last_step_line_timestamp_seconds",
    "gauge",
    "Unix time at which the agent last read a line about steps in the pod's logs.",
    LOG_FRAMEWORK,
)
JOB_LOG_REFUSED = Metric(
    "rankscope_job_log_refused_lines_total",
    "counter",
    "Lines that look as if they spoke of training steps and do not.",
    LOG_POD,
)
