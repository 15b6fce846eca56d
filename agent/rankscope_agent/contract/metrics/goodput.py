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
UNACCOUNTED_JOBS = Metric(
    "rankscope_unaccounted_jobs",
    "gauge",
    "Jobs of the last look of which no GPU time is counted, in no sum either, as a thousand others"
    " have accounts.",
)
PROJECT_JOB_SECONDS = Metric(
    "rankscope_project_job_seconds_total",
    "counter",
    "Time for which jobs of the project and class held GPUs and were watched, however many; over"
    " the interruptions it is their mean time to failure.",
    ("project", "job_class"),
)
PROJECT_INTERRUPTIONS = Metric(
    "rankscope_project_interruptions_total",
    "counter",
    "How often jobs of the project and class were restarted, or hung, while they were watched;"
    " interruption is restart or hang.",
    ("project", "job_class", "interruption"),
)
PROJECT_RECOVERY_SECONDS = Metric(
    "rankscope_project_recovery_seconds_total",
    "counter",
    "Time for which jobs of the project and class made no steps because of interruptions; divided"
    " by their number, the mean time to recovery.",
    ("project", "job_class", "interruption"),
)
PROJECT_START_GPU_SECONDS = Metric(
    "rankscope_project_start_gpu_seconds_total",
    "counter",
    "GPU time of the parts startup and restart, by the phase of the start: launch, process,"
    " rendezvous, first_step; before is what came before the processes, and unknown where no agent"
    " tells phases. They add up to these parts.",
    ("project", "job_class", "phase"),
)
PROJECT_DETECTIONS = Metric(
    "rankscope_project_detections_total",
    "counter",
    "Incidents of jobs of the project and class that rankscope watch found and that began while it"
    " was watching.",
    ("project", "job_class"),
)
PROJECT_DETECTION_SECONDS = Metric(
    "rankscope_project_detection_seconds_total",
    "counter",
    "Time from the beginnings of those incidents to when they were found; over the detections it is"
    " their mean time to detection.",
    ("project", "job_class"),
)
RECOVERIES = Metric(
    "rankscope_recovery_duration_seconds",
    "histogram",
    "How long jobs of the class made no steps because of a restart or hang, up to the first step"
    " after it: their recovery times.",
    ("job_class", "interruption"),
)
RECOVERIES_LATE = Metric(
    "rankscope_recoveries_late_total",
    "counter",
    "How many of these took longer than time_to_recover of rankscope.yaml allows the class.",
    ("job_class", "interruption"),
)
JOB_RECOVERY = Metric(
    "rankscope_job_last_recovery_seconds",
    "gauge",
    "How long the job made no steps because of the newest restart or hang that it recovered from;"
    " absent before the first.",
    ("job_id", "interruption"),
)
JOB_ETTR = Metric(
    "rankscope_job_effective_training_time_ratio",
    "gauge",
    "Productive GPU time of the job over all that was observed of it since it was first seen"
    " (ETTR).",
    ("job_id",),
)
PROJECT_COST = Metric(
    "rankscope_project_cost_total",
    "counter",
    "What that GPU time cost by the prices of rankscope.yaml; absent without prices, and without"
    " the time of GPUs that none of them fits.",
    ("project", "job_class", "part", "currency"),
)
PROJECT_UNPRICED = Metric(
    "rankscope_project_unpriced_gpu_seconds_total",
    "counter",
    "GPU time that no price of rankscope.yaml fits; absent without prices.",
    ("project",),
)
PROJECT_BUDGET = Metric(
    "rankscope_project_budget",
    "gauge",
    "What the project may spend in 30 days by rankscope.yaml.",
    ("project", "currency"),
)
JOB_FLOPS = Metric(
    "rankscope_job_model_flops_per_second",
    "gauge",
    "Floating-point operations that the job's model takes a second, of all its GPUs, over some"
    " minutes; flops_by is who says what a token or sample takes: program, parameters (6 for each)"
    " or log (what the job prints).",
    ("job_id", "flops_by"),
)
JOB_MFU = Metric(
    "rankscope_job_model_flops_utilization_ratio",
    "gauge",
    "Model FLOPs utilisation (MFU): what the job's model takes over what its GPUs could do with"
    " numbers of dtype; absent where their model is not known.",
    ("job_id", "flops_by", "dtype"),
)
JOB_PEAK_FLOPS = Metric(
    "rankscope_job_peak_flops_per_second",
    "gauge",
    "Floating-point operations a second that the job's GPUs could do with numbers of dtype, by"
    " their makers' data sheets; absent where their model is not known.",
    ("job_id", "dtype"),
)
JOB_THROUGHPUT = Metric(
    "rankscope_job_throughput_per_gpu",
    "gauge",
    "Tokens or samples a second (unit) for each GPU, in the best minutes that a job of this name"
    " had with so many GPUs in any of its runs of the last 30 days.",
    ("job_id", "gpus", "unit"),
)
JOB_SCALING = Metric(
    "rankscope_job_scaling_efficiency_ratio",
    "gauge",
    "That throughput for each GPU over the one with the fewest GPUs that a job of this name ran on;"
    " absent before it ran on more.",
    ("job_id",),
)
PROJECT_TOKENS = Metric(
    "rankscope_project_tokens_total",
    "counter",
    "Tokens that jobs of the project and class processed while they were watched, according to"
    " their programs.",
    ("project", "job_class"),
)
PROJECT_EPOCHS = Metric(
    "rankscope_project_epochs_total",
    "counter",
    "Passes over their datasets that jobs of the project and class made while they were watched,"
    " according to their programs; what a job repeats after a restart counts once.",
    ("project", "job_class"),
)
