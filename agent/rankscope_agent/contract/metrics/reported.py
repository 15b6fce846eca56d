"""Series about whether a run learns, and whether it would survive a failure, by its probes."""

from __future__ import annotations

from rankscope_agent.contract.metrics.training import RANK
from rankscope_agent.contract.model import Metric

NONFINITE_LOSSES = Metric(
    "rankscope_nonfinite_losses_total",
    "counter",
    "Losses that the program handed to the probe and that were infinite or NaN; absent where it"
    " hands over none.",
    RANK,
)
NONFINITE_LOSS_STEP = Metric(
    "rankscope_nonfinite_loss_step",
    "gauge",
    "Step after which the rank's loss last became infinite or NaN after finite ones, counted as"
    " rankscope_last_step is; absent where it never was.",
    RANK,
)
NONFINITE_LOSS_SHARDS = Metric(
    "rankscope_nonfinite_loss_shards",
    "gauge",
    "Files of the dataset that this loss came from, according to the program; 0 if it reported"
    " none.",
    RANK,
)
NONFINITE_LOSS_SHARD = Metric(
    "rankscope_nonfinite_loss_shard_name_checksum",
    "gauge",
    "CRC-32 of the name of each of these files, without its folder, where they are four at most;"
    " `rankscope explain dataset` looks it up in a manifest.",
    (*RANK, "position"),
)
LOSS = Metric(
    "rankscope_loss",
    "gauge",
    "Newest loss that the program handed to the probe; absent while it is infinite or NaN.",
    RANK,
)
LOSS_LEVEL = Metric(
    "rankscope_loss_level",
    "gauge",
    "Average of the rank's last twenty finite losses or so, with spikes cut off.",
    RANK,
)
LOSS_BEFORE_RESTART = Metric(
    "rankscope_loss_level_before_restart",
    "gauge",
    "Level of the loss at which the rank's process before this one ended; absent where there was"
    " none, and before twenty losses of this one.",
    RANK,
)
LOSS_LOWEST = Metric(
    "rankscope_loss_level_lowest",
    "gauge",
    "Lowest level of the loss since the rank's process began, once there were twenty losses.",
    RANK,
)
RESTART_RATIO = Metric(
    "rankscope_restart_ratio",
    "gauge",
    "What the rank's newest process began with over what the one before it ended with:"
    " learning_rate, batch_samples (the usual batch of each), world_size; absent where there was"
    " no restart.",
    (*RANK, "quantity"),
)
TRAINING_EVENT = Metric(
    "rankscope_training_last_event_timestamp_seconds",
    "gauge",
    "Unix time at which something last happened to the rank: restarted (when its newest process"
    " began to record), checkpoint_write_failed (of one that was cut off, when it began),"
    " checkpoint_load_failed, checkpoint_path_shared, loss_not_finite, loader_worker_died,"
    " cuda_out_of_memory; absent before the first time.",
    (*RANK, "event"),
)
LOSSES = Metric(
    "rankscope_losses_total", "counter", "Losses that the program handed to the probe.", RANK
)
CHECKPOINT_LOADS = Metric(
    "rankscope_checkpoint_loads_total",
    "counter",
    "Checkpoint files that the rank began to load and that came to an end, good or bad.",
    RANK,
)
CHECKPOINT_LOAD_FAILURES = Metric(
    "rankscope_checkpoint_load_failures_total",
    "counter",
    "Checkpoint files whose loading raised, or was cut off by the end of the rank's process.",
    RANK,
)
CHECKPOINT_EMERGENCY = Metric(
    "rankscope_checkpoint_emergency_writes_total",
    "counter",
    "Checkpoint files that the rank wrote after SIGTERM had come, by outcome: done, failed,"
    " interrupted; absent where there was none.",
    (*RANK, "outcome"),
)
CHECKPOINT_STEP = Metric(
    "rankscope_checkpoint_last_success_step",
    "gauge",
    "Step after which the rank finished its newest checkpoint file, counted as"
    " rankscope_last_step is; 0 where an earlier process of the rank wrote it.",
    RANK,
)
CHECKPOINT_OBJECTIVE = Metric(
    "rankscope_checkpoint_objective_seconds",
    "gauge",
    "Age that a running job's newest checkpoint should not exceed, as the agent was started with;"
    " absent if there is none.",
)
CHECKPOINT_SHARED = Metric(
    "rankscope_checkpoint_shared_paths_total",
    "counter",
    "Checkpoint files that two ranks of the job on this node wrote at the same time or after the"
    " same step; ranks of different pods are not compared.",
    ("job_id",),
)
STORE_FREE = Metric(
    "rankscope_checkpoint_store_free_bytes",
    "gauge",
    "Bytes free for the rank in the file system of its newest checkpoint, right after that was"
    " written; read by the rank itself.",
    RANK,
)
STORE_SIZE = Metric(
    "rankscope_checkpoint_store_size_bytes",
    "gauge",
    "Size of the file system of the rank's newest checkpoint.",
    RANK,
)
CHECKPOINTS_KEPT = Metric(
    "rankscope_checkpoint_versions",
    "gauge",
    "Checkpoints that lay beside the rank's newest one when that was written, itself included:"
    " names that differ in numbers alone.",
    RANK,
)
LEARNING_RATE = Metric(
    "rankscope_learning_rate",
    "gauge",
    "Learning rate of the first group of the rank's optimizer, or what the program says it is.",
    RANK,
)
SKIPPED_UPDATES = Metric(
    "rankscope_skipped_updates_total",
    "counter",
    "Updates of the weights that a GradScaler skipped, as gradients were not finite.",
    RANK,
)
TOKENS = Metric(
    "rankscope_tokens_total",
    "counter",
    "Tokens that the rank processed, according to the program.",
    RANK,
)
PARAMETERS = Metric(
    "rankscope_parameters",
    "gauge",
    "Parameters that the rank's optimizer updates: of a sharded model the rank's part.",
    RANK,
)
DEAD_WORKERS = Metric(
    "rankscope_loader_worker_deaths_total",
    "counter",
    "Worker processes of the rank's data loaders that died.",
    RANK,
)
CUDA_OUT_OF_MEMORY = Metric(
    "rankscope_cuda_out_of_memory_total",
    "counter",
    "Times that the rank's allocator had no CUDA memory left, whether the program survived it or"
    " not.",
    RANK,
)
