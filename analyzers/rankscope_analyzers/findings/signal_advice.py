"""What to do about findings on checkpoints and on what training reports about itself."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_analyzers.findings.finding import Advice

SIGNAL_ADVICE: Mapping[str, Advice] = {
    # Checkpoints.
    "checkpoint_failed": Advice(
        "page",
        "Read what writing raised (rankscope logs JOB --errors; outside Kubernetes --from DIR"
        " instead of JOB), make room or restore access, and do not restart the job before one is"
        " written.",
        "RankscopeCheckpointFailing",
        "ml",
    ),
    "checkpoint_not_loaded": Advice(
        "page",
        "Find the last good checkpoint (rankscope explain checkpoint DIR) and resume from it.",
        "RankscopeCheckpointCorrupt",
        "ml",
    ),
    "checkpoint_overwritten": Advice(
        "ticket",
        "Let rank 0 alone write it, or give each rank a path of its own; check the one on disk"
        " (rankscope explain checkpoint DIR).",
        "RankscopeCheckpointOverwritten",
        "ml",
    ),
    "checkpoint_overdue": Advice(
        "ticket",
        "Look whether saving fails, hangs or is not due, and have one written before anything is"
        " restarted.",
        "RankscopeCheckpointOverdue",
        "ml",
    ),
    "checkpoint_store_full": Advice(
        "page",
        "Remove checkpoints that are not needed, or give the job more room, before the next save.",
        "RankscopeCheckpointStoreFilling",
        "ml",
    ),
    "checkpoint_share": Advice(
        "ticket",
        "Save less often (rankscope explain checkpoint DIR --write-seconds S --failures-per-day N"
        " says how often), asynchronously, or to faster storage.",
        "RankscopeSlowStorage",
        "ml",
    ),
    # Losses, rates, batches.
    "loss_not_finite": Advice(
        "page",
        "Stop the job unless its framework skips such steps; go back to a checkpoint from before.",
        "RankscopeNonFiniteLoss",
        "ml",
    ),
    "loss_diverging": Advice(
        "ticket",
        "Go back to a checkpoint from before the loss rose, with a lower learning rate or without"
        " the input that it read then.",
        "RankscopeLossDiverging",
        "ml",
    ),
    "loss_jump": Advice(
        "ticket",
        "Compare what was loaded with what was saved last: model, optimizer, scheduler, sampler"
        " (rankscope explain checkpoint DIR).",
        "RankscopeLossJump",
        "ml",
    ),
    "learning_rate_changed": Advice(
        "ticket",
        "Restore the scheduler's state with the optimizer's, or scale the rate as intended.",
        "RankscopeLossJump",
        "ml",
    ),
    "batch_changed": Advice(
        "ticket",
        "Keep the global batch with more accumulation or larger batches, or scale the learning"
        " rate with it.",
        "RankscopeLossJump",
        "ml",
    ),
    # Input and memory.
    "loader_worker_died": Advice(
        "ticket",
        "Look for what ended them: memory of the pod, shared memory, an exception in the dataset"
        " (rankscope logs JOB --errors; outside Kubernetes --from DIR instead of JOB).",
        "RankscopeStragglerData",
        "ml",
    ),
    "cuda_out_of_memory": Advice(
        "ticket",
        "Lower the batch or sequence length, or checkpoint activations; look what else uses the"
        " GPU's memory.",
        "RankscopePodFailed",
        "ml",
    ),
}
