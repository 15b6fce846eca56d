"""Series about the work of jobs: tokens, and what is known about their models.

Each concerns one node; `rankscope watch` combines them (docs/goodput.md).
"""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

JOB_TOKENS = Metric(
    "rankscope_job_tokens_total",
    "counter",
    "Tokens that the job's ranks on this node processed according to the program, ranks that have"
    " ended included; ranks of one pipeline or tensor group each count the same ones.",
    ("job_id",),
)
JOB_EPOCHS = Metric(
    "rankscope_job_epochs",
    "gauge",
    "Passes over the dataset that the job has made according to the program, parts of one included:"
    " the most that a rank on this node says.",
    ("job_id",),
)
JOB_PARAMETERS = Metric(
    "rankscope_job_parameters",
    "gauge",
    "Parameters for which the job's ranks on this node stand, such that nodes add up to each"
    " parameter of the model once; absent where ranks may hold copies as well as shards.",
    ("job_id",),
)
JOB_MODEL_FLOPS = Metric(
    "rankscope_job_model_flops",
    "gauge",
    "Floating-point operations that one token or one sample takes, forward and backward, according"
    " to the program; per is token or sample.",
    ("job_id", "per"),
)
JOB_NUMBERS_INFO = Metric(
    "rankscope_job_numbers_info",
    "gauge",
    "Always 1; the type of numbers that the job computes with according to the program: fp32, tf32,"
    " fp16, bf16, fp8 or fp4.",
    ("job_id", "dtype"),
)
