"""Iteration lines of Megatron-LM and Megatron-DeepSpeed.

`training_log` of megatron/training/training.py prints them every --log-interval iterations, on the
last rank only, as ` iteration N/ M | name: value | ... |`.
"""

from __future__ import annotations

import math
import re

from rankscope_agent.sources.nccl_log.step_lines.values import (
    MAX_STEP,
    MEGATRON,
    StepLine,
    number,
    rate,
    seconds,
)

MARK = b"elapsed time per iteration ("
SAVE_MARK = b"save-checkpoint"
"""The timer around a save, printed after it (megatron/core/timers.py)."""

MAX_FIELDS = 64
"""Fields of a line: with every auxiliary loss there are fewer than 40."""

_ITERATION = re.compile(rb"iteration +(\d{1,15})/ *(\d{1,15}) \|")
_SAVE = re.compile(
    rb"(?:time \(ms\) \|.{0,400}? )?save-checkpoint(?: \.{1,64})?: {0,2}"
    rb"\(?(\d{1,12}\.\d{1,6})(?:, (\d{1,12}\.\d{1,6})\))?(?: \||\s*$)"
)
"""`    save-checkpoint ....: (812.31, 815.02)`, before 2023 one line with several timers."""
_LOSSES = (b"lm loss", b"loss", b"total loss", b"reduced_train_loss")
"""The training loss, by precedence: GPT, BERT and T5 print `lm loss`, fine-tuning `loss`."""


def read(words: bytes) -> StepLine | None:
    """Read the words of a line; return None if they are not Megatron's."""
    match = _ITERATION.match(words)
    if match is None or not words.rstrip().endswith(b"|"):
        return None
    step, total = int(match[1]), int(match[2])
    fields = _fields(words[match.end() :])
    elapsed = _elapsed(fields)
    # Every version prints the learning rate, which a line composed of other words lacks.
    if elapsed is None or b"learning rate" not in fields or not 0 < step <= min(total, MAX_STEP):
        return None
    return StepLine(
        MEGATRON,
        step=step,
        step_seconds=elapsed,
        samples_per_second=_samples_per_second(fields, elapsed),
        gpu_flops_per_second=_flops(fields),
        loss=_loss(fields),
        skipped=_count(fields.get(b"number of skipped iterations")),
    )


def read_save(words: bytes) -> StepLine | None:
    """Read the line of the timer of saves; of several ranks the slowest counts."""
    found = _SAVE.match(words)
    if found is None:
        return None
    took = seconds(max(number(one) for one in found.groups() if one) / 1000)
    return None if took is None else StepLine(MEGATRON, checkpoint_seconds=took)


def _fields(text: bytes) -> dict[bytes, float]:
    """Return the numbers of `name: value | name: value |`."""
    found = {}
    for part in text.split(b"|", MAX_FIELDS)[:MAX_FIELDS]:
        name, colon, value = part.rpartition(b":")
        if colon:
            found[name.strip()] = number(value.strip())
    return found


def _elapsed(fields: dict[bytes, float]) -> float | None:
    if b"elapsed time per iteration (ms)" in fields:
        return seconds(fields[b"elapsed time per iteration (ms)"] / 1000)
    return seconds(fields.get(b"elapsed time per iteration (s)", 0.0))


def _samples_per_second(fields: dict[bytes, float], elapsed: float) -> float | None:
    if b"samples per second" in fields:
        return rate(fields[b"samples per second"])
    return rate(fields.get(b"global batch size", 0.0) / elapsed)


def _loss(fields: dict[bytes, float]) -> float | None:
    """Return the loss of the iterations that have one; Megatron omits it if all were NaN."""
    none = math.nan if fields.get(b"number of nan iterations", 0.0) > 0 else None
    return next((fields[name] for name in _LOSSES if name in fields), none)


def _flops(fields: dict[bytes, float]) -> float | None:
    """Return floating-point operations per GPU and second, which are printed in units of 1e12."""
    for name in (b"throughput per GPU (TFLOP/s/GPU)", b"TFLOPs"):
        if name in fields:
            value = rate(fields[name])
            return None if value is None else value * 1e12
    return None


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value <= MAX_STEP else None
