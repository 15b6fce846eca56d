"""The series of one pod's step lines: pure, from facts to samples."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import job_logs as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.nccl_log.step_lines.values import Progress, StepFacts
from rankscope_agent.sources.pods.log_directories import PodIdentity

SOURCE = "log"
"""Label of every such value: printed by the job itself, for the whole job; not measured here."""

NEWEST: tuple[tuple[str, Metric], ...] = (
    ("step", metrics.JOB_LOG_STEP),
    ("step_seconds", metrics.JOB_LOG_STEP_SECONDS),
    ("samples_per_second", metrics.JOB_LOG_SAMPLES_RATE),
    ("gpu_flops_per_second", metrics.JOB_LOG_GPU_FLOPS),
    ("loss", metrics.JOB_LOG_LOSS),
    ("lines", metrics.JOB_LOG_STEP_LINES),
    ("nonfinite_losses", metrics.JOB_LOG_NONFINITE_LOSSES),
    ("skipped", metrics.JOB_LOG_SKIPPED_STEPS),
    ("last_line", metrics.JOB_LOG_LAST_LINE),
    ("tokens_per_second", metrics.JOB_LOG_TOKENS_RATE),
    ("gpu_tokens_per_second", metrics.JOB_LOG_GPU_TOKENS_RATE),
    ("checkpoint_seconds", metrics.JOB_LOG_CHECKPOINT_SECONDS),
    ("checkpoints", metrics.JOB_LOG_CHECKPOINTS),
)
"""Fields of `Progress` and the series that export them."""


def step_samples(owner: PodIdentity, facts: StepFacts) -> Iterator[Sample]:
    """Yield the series of one pod's (or the node's own) logs, except values that no line has."""
    pod = (owner.namespace, owner.name)
    for framework, known in facts.frameworks.items():
        yield from _samples((*pod, framework, SOURCE), known)
    yield Sample(metrics.JOB_LOG_REFUSED, pod, facts.refused)


def _samples(labels: tuple[str, ...], known: Progress) -> Iterator[Sample]:
    for name, metric in NEWEST:
        value = getattr(known, name)
        if value is not None:
            yield Sample(metric, labels, value)
