"""What is said of each class of incident, and of each way in which it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_analyzers.findings.advice import (
    ADVICE,
    FROZEN_HOST,
    FROZEN_INPUT,
    MOST_SLOWER,
    UNSEEN_RANKS,
)
from rankscope_analyzers.findings.finding import Advice, FaultClass


@dataclass(frozen=True, slots=True)
class Template:
    """Texts for one class of fault, or for one way in which it shows.

    Args:
        source: the column that shows it.
        sentence: with placeholders `who`, `s` (the ending of its verb), `its`, `values`, `ratio`
            ("1.50x as long" or "long") and others.
        meaning: of the observed and expected values.
        instead: advice that replaces that on its class.
    """

    source: str
    sentence: str
    meaning: str
    instead: Advice | None = None


TEMPLATES: Mapping[tuple[FaultClass, str], Template] = {
    ("gpu_compute", ""): Template(
        "compute_seconds",
        "{who} compute{s} {ratio} as {its} peers ({values} a step)",
        "the slow phase, against the ranks of the same stage",
    ),
    ("gpu_compute", "stage"): Template(
        "compute_seconds",
        "{who} compute{s} {ratio} as before ({values} a step), and the other stages do not",
        "compute of its stage, against what it was",
    ),
    ("data_loader", ""): Template(
        "data_seconds",
        "{who} wait{s} {ratio} for input as {its} peers ({values} a step)",
        "the slow phase, against the median of all ranks",
    ),
    ("data_loader", "only_loader"): Template(
        "data_seconds",
        "{who} wait{s} {ratio} for input as {before} ({values} a step), and all others for it:"
        " no other rank loads any",
        "input time of the only rank that loads; with workers that load ahead it is next to none",
    ),
    ("data_loader", "freeze"): Template(
        "data_seconds",
        "{who} stood still for its input, for {observed}",
        "one wait for input, beyond the usual one",
        FROZEN_INPUT,
    ),
    ("network_link", ""): Template(
        "sync_seconds",
        "the gradient exchange {at} takes {ratio} as {before} ({values})",
        "transfer time of the slowest gradient group, against what it was",
    ),
    ("network_link", "from_start"): Template(
        "sync_seconds",
        "the gradient exchange {at} has been slow from the start ({values} by how late they leave)",
        "transfer time of the slowest gradient group, against what the lateness allows",
    ),
    ("storage_checkpoint", ""): Template(
        "other_seconds",
        "storage is slow for {who}: checkpoints take {values}",
        "time of a checkpoint, against what is usual",
    ),
    ("storage_checkpoint", "input"): Template(
        "data_seconds",
        "storage is slow for {who}: they wait for input for {values} a step",
        "median input time of all ranks, against the start of the run",
    ),
    ("storage_checkpoint", "workers"): Template(
        "loader_seconds",
        "storage is slow for {who}: the workers of their loaders need {values} a step",
        "what workers need for a step's batches, median of all ranks, against the rest of the step",
    ),
    ("storage_checkpoint", "checkpoint"): Template(
        "other_seconds",
        "storage is slow: checkpoints written by rank 0 take {values}",
        "time that all others wait, against what is usual",
    ),
    ("global_slowdown", ""): Template(
        "compute_seconds",
        "all ranks spend {times} the earlier time computing ({values} a step)",
        "median over ranks of computing, against the job's own beginning",
    ),
    ("global_slowdown", "most"): Template(
        "compute_seconds",
        "{slower} ranks spend {times} the earlier time computing ({values} a step)",
        "median over ranks of computing, against the job's own beginning",
        MOST_SLOWER,
    ),
    ("global_slowdown", "exchange"): Template(
        "sync_seconds",
        "all ranks spend {times} the earlier time exchanging gradients ({values} a step)",
        "median over groups of the exchange, against the job's own beginning",
    ),
    ("global_slowdown", "unseen"): Template(
        "sync_seconds",
        "all observed ranks wait {times} the earlier time in collectives ({values} a step), for"
        " {unseen} or for a slower exchange",
        "median over groups of the shortest wait, against the job's own beginning",
        UNSEEN_RANKS,
    ),
    ("global_slowdown", "steps"): Template(
        "step_seconds",
        "steps take {times} the earlier time ({values}); what they are made of is not measured",
        "median step, against the job's own beginning",
    ),
    ("partition_imbalance", ""): Template(
        "compute_seconds",
        "the work is split unevenly: {uneven}",
        "compute of the heavy stage against the others, or spread between replicas",
    ),
    ("partition_imbalance", "samples"): Template(
        "samples",
        "samples are distributed unevenly: {uneven}",
        "largest count of a step, against the mean of all ranks",
    ),
    ("partition_imbalance", "ranks"): Template(
        "compute_seconds",
        "the work is split unevenly: the rank with the most computes {ratio} as the others"
        " ({values} a step)",
        "compute of the rank with the most work, against the others",
    ),
    ("host_transient", ""): Template(
        "step_seconds",
        "the host stalls {who} occasionally, for {values}",
        "mean length of a stall; healthy hosts have none",
    ),
    ("host_transient", "freeze"): Template(
        "step_seconds",
        "{who} stood still for {observed}",
        "length of the pause; healthy hosts have none",
        FROZEN_HOST,
    ),
    ("host_transient", "wait"): Template(
        "sync_seconds",
        "all ranks waited in one collective for {observed}; the rank they waited for is unknown",
        "wait of the rank that waited least, beyond its usual wait",
        FROZEN_HOST,
    ),
    ("host_transient", "cpu_wait"): Template(
        "cpu_wait_seconds",
        "{who} wait{s} {ratio} for a CPU as {its} peers ({values} a step)",
        "the slow phase, against the median of all ranks",
        ADVICE["cpu_starved"],
    ),
}
