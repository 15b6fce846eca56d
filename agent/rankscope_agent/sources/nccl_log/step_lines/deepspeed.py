"""DeepSpeed's step lines, printed every steps_per_print steps, on rank 0 only.

deepspeed/runtime/engine.py `_report_progress`, deepspeed/utils/timer.py `ThroughputTimer` and
deepspeed/runtime/pipe/engine.py `train_batch`; versions 0.3 to 0.19.
"""

from __future__ import annotations

import re

from rankscope_agent.sources.nccl_log.step_lines.values import (
    DEEPSPEED,
    StepLine,
    number,
    rate,
    seconds,
)

MARKS = (b"SamplesPerSec=", b", skipped=", b"iter time (s): ")

_NUMBER = rb"(-?(?:\d{1,15}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?|inf|nan))"
_PROGRESS = re.compile(rb"step=(\d{1,12}), skipped=(\d{1,12}), lr=\[[^\n]{0,2000}?\], mom=\[")
_SPEED = re.compile(
    rb"(?:(?:epoch=\d{1,9}/micro_step=\d{1,12}/global_step=(\d{1,12})|\d{1,9}/\d{1,12}),"
    rb" RunningAvgSamplesPerSec="
    + _NUMBER
    + rb", CurrSamplesPerSec="
    + _NUMBER
    + rb", MemAllocated="
    # Preceded by epoch or rank, and micro step; before 0.5.9 with the average only.
    rb"|\d{1,9}/\d{1,12}, SamplesPerSec=" + _NUMBER + rb"(?:, MemAllocated=|\s*$))"
)
_PIPELINE = re.compile(
    rb"steps: (\d{1,12}) loss: "
    + _NUMBER
    + rb" (?:[\w ]{1,60}: "
    + _NUMBER
    + rb" ){0,8}?iter time \(s\): "
    + _NUMBER
    + rb" samples/sec: "
    + _NUMBER
)


class DeepSpeedLines:
    """Reads DeepSpeed's lines; step times are derived from the time stamps of two of them.

    Attributes:
        last: step, skipped steps and time of the newest line with counters; None if there is none.
    """

    def __init__(self) -> None:
        self.last: tuple[int, int, float | None] | None = None

    def read(self, words: bytes, written: float | None) -> StepLine | None:
        """Read the words of a line; return None if they are not DeepSpeed's.

        Args:
            words: the line after its tags.
            written: when it was written, in seconds from any origin.
        """
        progress = _PROGRESS.match(words)
        if progress is not None:
            return self._progress(int(progress[1]), int(progress[2]), written)
        pipeline = _PIPELINE.match(words)
        if pipeline is not None:
            return StepLine(
                DEEPSPEED,
                step=int(pipeline[1]),
                loss=number(pipeline[2]),
                step_seconds=seconds(number(pipeline[4])),
                samples_per_second=rate(number(pipeline[5])),
            )
        return _speed(words)

    def _progress(self, step: int, skipped: int, written: float | None) -> StepLine:
        """Return a line from DeepSpeed's counters; skipped steps are counted from the start."""
        took, more = None, skipped
        if self.last is not None:
            last_step, last_skipped, last_time = self.last
            if step > last_step and written is not None and last_time is not None:
                took = seconds((written - last_time) / (step - last_step))
            if skipped >= last_skipped:
                more = skipped - last_skipped
        self.last = (step, skipped, written)
        return StepLine(DEEPSPEED, step=step, step_seconds=took, skipped=more)


def _speed(words: bytes) -> StepLine | None:
    match = _SPEED.match(words)
    if match is None:
        return None
    step = None if match[1] is None else int(match[1])  # older ones print the micro step
    speed = match[3] if match[3] is not None else match[4]
    return StepLine(DEEPSPEED, step=step, samples_per_second=rate(number(speed)))
