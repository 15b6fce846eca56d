"""Series about training processes, as recorded by their probes."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

RANK = ("job_id", "rank")

RANK_INFO = Metric(
    "rankscope_rank_info",
    "gauge",
    "Always 1; where a rank of a job runs and how its time is measured; labels are empty if"
    " unknown.",
    (
        *("job_id", "rank", "node", "local_rank", "world_size", "uuid"),
        *("pod_uid", "pod_namespace", "pod_name", "container_name"),
        *("dp_group", "tp_group", "pp_stage", "launcher", "timing_source"),
    ),
)
STEPS = Metric("rankscope_steps_total", "counter", "Optimizer steps the rank finished.", RANK)
STEP_SECONDS = Metric(
    "rankscope_step_seconds_total", "counter", "Time the rank spent in finished steps.", RANK
)
DATA_SECONDS = Metric(
    "rankscope_data_seconds_total",
    "counter",
    "Time the rank was blocked waiting for input in finished steps; on CUDA, in steps whose compute"
    " is measured, only while the device stood still for it.",
    RANK,
)
COMPUTE_SECONDS = Metric(
    "rankscope_compute_seconds_total",
    "counter",
    "Time the rank spent computing in finished steps; absent if it cannot be measured.",
    RANK,
)
SYNC_SECONDS = Metric(
    "rankscope_sync_seconds_total",
    "counter",
    "Time the rank was blocked in collectives in finished steps; absent if not measured.",
    RANK,
)
OTHER_SECONDS = Metric(
    "rankscope_other_seconds_total",
    "counter",
    "Time in finished steps in which the rank neither computed nor waited: optimizer,"
    " evaluation, checkpoints, logging; absent if it cannot be separated from compute time.",
    RANK,
)
CPU_WAIT_SECONDS = Metric(
    "rankscope_cpu_wait_seconds_total",
    "counter",
    "Time in finished steps, outside of collectives, in which the rank's training thread was"
    " ready to run but waited for a CPU; absent if it is not counted.",
    RANK,
)
SAMPLES = Metric(
    "rankscope_samples_total",
    "counter",
    "Training samples the rank fetched from its data loader.",
    RANK,
)
LAST_STEP = Metric("rankscope_last_step", "gauge", "Number of the rank's newest step.", RANK)
LAST_STEP_TIMESTAMP = Metric(
    "rankscope_last_step_timestamp_seconds",
    "gauge",
    "Unix time at which the rank's newest step ended.",
    RANK,
)
LAST_STEP_SECONDS = Metric(
    "rankscope_last_step_seconds", "gauge", "Duration of the rank's newest step.", RANK
)
LAST_DATA_SECONDS = Metric(
    "rankscope_last_data_seconds", "gauge", "Data wait in the rank's newest step.", RANK
)
LAST_COMPUTE_SECONDS = Metric(
    "rankscope_last_compute_seconds", "gauge", "Compute time in the rank's newest step.", RANK
)
CHECKPOINT_WRITES = Metric(
    "rankscope_checkpoint_writes_total",
    "counter",
    "Checkpoint files that the rank began to write and that came to an end, good or bad; absent"
    " where its probe marks none.",
    RANK,
)
CHECKPOINT_WRITE_FAILURES = Metric(
    "rankscope_checkpoint_write_failures_total",
    "counter",
    "Checkpoint files whose writing raised, or was cut off by the end of the rank's process.",
    RANK,
)
CHECKPOINT_WRITE_SECONDS = Metric(
    "rankscope_checkpoint_write_seconds_total",
    "counter",
    "Time the rank spent writing checkpoint files that it finished, beside training or not.",
    RANK,
)
CHECKPOINT_BLOCKED = Metric(
    "rankscope_checkpoint_blocked_seconds_total",
    "counter",
    "Time in which the rank could take no step as it saved a checkpoint; what is written beside"
    " training is not in it.",
    RANK,
)
SPAN_BLOCKED = Metric(
    "rankscope_span_blocked_seconds_total",
    "counter",
    "Time in which the rank could take no step as it did something beside steps, by kind:"
    " evaluation, compile. rankscope_checkpoint_blocked_seconds_total has that of checkpoints.",
    (*RANK, "kind"),
)
CHECKPOINT_LAST_SUCCESS = Metric(
    "rankscope_checkpoint_last_success_timestamp_seconds",
    "gauge",
    "Unix time at which the rank finished its newest checkpoint file; absent before the first.",
    RANK,
)
CHECKPOINT_LAST_WRITE = Metric(
    "rankscope_checkpoint_last_write_seconds",
    "gauge",
    "How long the rank took to write its newest finished checkpoint file.",
    RANK,
)
SPAN_BEGAN = Metric(
    "rankscope_span_began_timestamp_seconds",
    "gauge",
    "Unix time at which the rank began what it is doing beside steps; absent while it does nothing"
    " of that kind: checkpoint_save, checkpoint_load, checkpoint_staging, evaluation, compile.",
    (*RANK, "kind"),
)
RANK_ALIVE = Metric(
    "rankscope_rank_alive",
    "gauge",
    "1 while the rank's training process is alive and holds its ring, 0 once it has ended; absent"
    " while its ring is not read (rankscope_training_rings_rejected says why).",
    RANK,
)
RANK_ENDED = Metric(
    "rankscope_rank_ended_timestamp_seconds",
    "gauge",
    "Unix time at which the rank's training process ended; absent while it lives, and where that"
    " was before the agent began.",
    RANK,
)
JOB_REPLICA_GROUP_RANKS = Metric(
    "rankscope_job_replica_group_ranks",
    "gauge",
    "Ranks in each replica group of a job whose other groups continue while one recovers"
    " (TorchFT, with REPLICA_GROUP_ID and NUM_REPLICA_GROUPS); ranks are numbered over all groups."
    " Absent for others.",
    ("job_id",),
)
RECORDS_LOST = Metric(
    "rankscope_training_records_lost_total",
    "counter",
    "Step records overwritten in the rank's ring before the agent could read them.",
    RANK,
)
JOB_SAMPLES = Metric(
    "rankscope_job_samples_total",
    "counter",
    "Training samples fetched by the job's ranks on this node, including ranks that have ended.",
    ("job_id",),
)
RECORDS_CORRUPT = Metric(
    "rankscope_training_records_corrupt_total",
    "counter",
    "Step records that were inconsistent and were discarded.",
)
RINGS = Metric("rankscope_training_rings", "gauge", "Probe rings that the agent is reading.")
RINGS_REJECTED = Metric(
    "rankscope_training_rings_rejected",
    "gauge",
    "Files in ring directories that the agent refuses to read, by reason; absent if there are"
    " none.",
    ("reason",),
)
STEP_LATENCY = Metric(
    "rankscope_step_latency_seconds",
    "histogram",
    "Step durations of the job's ranks on this node.",
    ("job_id",),
)
SYNC_TIME = Metric(
    "rankscope_sync_time_seconds",
    "histogram",
    "Time per step in which the job's ranks on this node were blocked in collectives.",
    ("job_id",),
)
