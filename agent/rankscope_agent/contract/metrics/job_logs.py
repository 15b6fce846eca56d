"""Series from what training frameworks log about their steps."""

from __future__ import annotations

from rankscope_agent.contract.metrics.nccl_log import LOG_POD
from rankscope_agent.contract.model import Metric

LOG_FRAMEWORK = (*LOG_POD, "framework", "source")

JOB_LOG_STEP = Metric(
    "rankscope_job_log_last_step",
    "gauge",
    "Newest step that the job's framework logged; for Lightning, Keras and many scripts, the batch"
    " within its epoch.",
    LOG_FRAMEWORK,
)
JOB_LOG_STEP_SECONDS = Metric(
    "rankscope_job_log_step_seconds",
    "gauge",
    "Step time of the whole job according to its log; it says nothing about single ranks.",
    LOG_FRAMEWORK,
)
JOB_LOG_SAMPLES_RATE = Metric(
    "rankscope_job_log_samples_per_second",
    "gauge",
    "Samples per second of the whole job according to its log.",
    LOG_FRAMEWORK,
)
JOB_LOG_TOKENS_RATE = Metric(
    "rankscope_job_log_tokens_per_second",
    "gauge",
    "Tokens per second of the whole job according to its log.",
    LOG_FRAMEWORK,
)
JOB_LOG_GPU_TOKENS_RATE = Metric(
    "rankscope_job_log_gpu_tokens_per_second",
    "gauge",
    "Tokens per second and GPU according to the job's log.",
    LOG_FRAMEWORK,
)
JOB_LOG_CHECKPOINT_SECONDS = Metric(
    "rankscope_job_log_checkpoint_seconds",
    "gauge",
    "How long the newest checkpoint took to write, according to the job's log.",
    LOG_FRAMEWORK,
)
JOB_LOG_CHECKPOINTS = Metric(
    "rankscope_job_log_checkpoints_total",
    "counter",
    "Checkpoints that were written, according to the job's log; absent before the first.",
    LOG_FRAMEWORK,
)
JOB_LOG_GPU_FLOPS = Metric(
    "rankscope_job_log_gpu_flops_per_second",
    "gauge",
    "Floating-point operations per second and GPU according to the job's log.",
    LOG_FRAMEWORK,
)
JOB_LOG_LOSS = Metric(
    "rankscope_job_log_loss",
    "gauge",
    "Newest training loss that the job logged; absent while it is infinite or NaN.",
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
    "Training losses in the pod's logs that were infinite or NaN.",
    LOG_FRAMEWORK,
)
JOB_LOG_SKIPPED_STEPS = Metric(
    "rankscope_job_log_skipped_steps_total",
    "counter",
    "Steps that did not update the weights, according to the job's log.",
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
    "Log lines that look like lines about training steps but are not.",
    LOG_POD,
)
JOB_LOG_FAILURE = Metric(
    "rankscope_job_log_failure_timestamp_seconds",
    "gauge",
    "Unix time of the earliest failure in the job's logs on this node, with its cause"
    " and the rank that failed first (empty if the logs do not tell), for the newest two failed"
    " attempts. own is false if the node's ranks only failed after ranks of other nodes.",
    ("job_id", "cause", "rank", "own"),
)
