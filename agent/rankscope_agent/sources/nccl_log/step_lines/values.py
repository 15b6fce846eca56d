"""Values of one step line, and the combined values of all lines of a pod."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MEGATRON = "megatron"
DEEPSPEED = "deepspeed"
HF_TRAINER = "hf_trainer"
LIGHTNING = "lightning"
NCCL = "nccl"
PYTORCH = "pytorch"
KERAS = "keras"
JAX = "jax"
XGBOOST = "xgboost"
PADDLE = "paddle"
MXNET = "mxnet"
TORCHTUNE = "torchtune"
NEMO = "nemo"
OWN = "own"

FRAMEWORKS = (
    *(MEGATRON, DEEPSPEED, HF_TRAINER, LIGHTNING, NCCL),
    *(PYTORCH, KERAS, JAX, XGBOOST, PADDLE, MXNET, TORCHTUNE, NEMO, OWN),
)
"""The sources of lines about steps; `nccl` stands for the period of the collectives that NCCL
prints, `pytorch` includes users' own scripts, `own` is a pattern of the user."""

MAX_STEP = 10**12
"""Steps above this are garbage: a step per microsecond for eleven days."""

MAX_SECONDS = 86_400.0
"""Longest step accepted: a day."""

MAX_RATE = 1e12
"""Largest rate accepted, in samples per second."""


@dataclass(frozen=True, slots=True)
class StepLine:
    """One line about steps; values that it lacks are None.

    Args:
        framework: one of `FRAMEWORKS`.
        step: optimizer steps done (Lightning, Keras and many scripts: batches of the epoch).
        step_seconds: duration of one step.
        samples_per_second: of the whole job.
        gpu_flops_per_second: floating-point operations per GPU and second.
        loss: the training loss, which may be infinite or NaN.
        skipped: steps without an update since the previous such line.
        tokens_per_second: of the whole job.
        gpu_tokens_per_second: per GPU, for frameworks that print it.
        checkpoint_seconds: how long writing a checkpoint took, on a line about one.
    """

    framework: str
    step: int | None = None
    step_seconds: float | None = None
    samples_per_second: float | None = None
    gpu_flops_per_second: float | None = None
    loss: float | None = None
    skipped: int | None = None
    tokens_per_second: float | None = None
    gpu_tokens_per_second: float | None = None
    checkpoint_seconds: float | None = None


@dataclass(slots=True)
class Progress:
    """What one framework has logged about its steps: the newest of each value, and counts.

    Args:
        lines: number of lines about steps.
        nonfinite_losses: number of losses that are infinite or NaN.
        skipped: steps without an update; None if not printed.
        last_line: Unix time at which the newest line was read.
        checkpoints: number of lines about written checkpoints; None if there was none.
    """

    step: int | None = None
    step_seconds: float | None = None
    samples_per_second: float | None = None
    gpu_flops_per_second: float | None = None
    loss: float | None = None
    lines: int = 0
    nonfinite_losses: int = 0
    skipped: int | None = None
    last_line: float | None = None
    tokens_per_second: float | None = None
    gpu_tokens_per_second: float | None = None
    checkpoint_seconds: float | None = None
    checkpoints: int | None = None

    def take(self, line: StepLine, now: float) -> None:
        """Process a line that was read at a given time."""
        self.last_line = now
        if line.checkpoint_seconds is not None:
            self.checkpoint_seconds = line.checkpoint_seconds
            self.checkpoints = (self.checkpoints or 0) + 1
            return
        self.lines += 1
        self.tokens_per_second = line.tokens_per_second or self.tokens_per_second
        self.gpu_tokens_per_second = line.gpu_tokens_per_second or self.gpu_tokens_per_second
        self.step = line.step if line.step is not None else self.step
        self.step_seconds = line.step_seconds or self.step_seconds
        self.samples_per_second = line.samples_per_second or self.samples_per_second
        self.gpu_flops_per_second = line.gpu_flops_per_second or self.gpu_flops_per_second
        if line.skipped is not None:
            self.skipped = (self.skipped or 0) + line.skipped
        if line.loss is not None and math.isfinite(line.loss):
            self.loss = line.loss
        elif line.loss is not None:
            # An earlier loss would hide that there is none now.
            self.nonfinite_losses, self.loss = self.nonfinite_losses + 1, None


@dataclass(slots=True)
class StepFacts:
    """Everything a pod's logs say about its steps.

    Args:
        refused: lines that look like lines about steps but are not; bars are not counted.
    """

    frameworks: dict[str, Progress] = field(default_factory=dict)
    refused: int = 0

    def take(self, line: StepLine, now: float) -> None:
        """Process a line."""
        self.frameworks.setdefault(line.framework, Progress()).take(line, now)


def seconds(value: float) -> float | None:
    """Return a step's duration if it is plausible."""
    return value if 0 < value <= MAX_SECONDS else None


def rate(value: float) -> float | None:
    """Return a rate if it is plausible."""
    return value if 0 < value <= MAX_RATE else None


def number(text: bytes) -> float:
    """Return a printed number; `nan` for anything else.

    Python's float() accepts underscores, which no framework prints.
    """
    try:
        return math.nan if b"_" in text else float(text)
    except ValueError:
        return math.nan
