"""Hugging Face's Trainer and Lightning: progress bars, and dictionaries with the loss.

transformers/trainer_callback.py: ProgressCallback shows a bar without a description over all steps
and prints `{'loss': .., 'grad_norm': .., 'learning_rate': .., 'epoch': ..}`, since 5.0 with strings
for numbers. Its evaluation shows a bar without a description as well. Lightning's bars are called
`Epoch N`, and contain `v_num` if there is a logger.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from rankscope_agent.sources.nccl_log.step_lines.bars import Bar
from rankscope_agent.sources.nccl_log.step_lines.values import (
    HF_TRAINER,
    LIGHTNING,
    StepLine,
    number,
    rate,
)

DICTIONARY_MARKS = (b"{'loss': ", b"{'train_runtime': ")
BANNER = b"GPU available: "

MAX_DICTIONARY = 4096
"""Bytes of a dictionary that are read: those of preference training have some 1,500."""

MAX_TOTALS = 16
"""Bars without a description that are distinguished, by their totals."""

_VALUE = rb"(?:'[^'\n]{0,200}'|-?[\w.+-]{1,40})"
_DICTIONARY = re.compile(
    rb"\{'[^'\n]{1,80}': " + _VALUE + rb"(?:, '[^'\n]{1,80}': " + _VALUE + rb"){1,80}\}\s*$"
)
_ITEM = re.compile(rb"'([^'\n]{1,80})': (" + _VALUE + rb")")
_EPOCH = re.compile(r"Epoch \d{1,9}(?:/\d{1,9})?")
_LOSSES = (
    "loss",
    "train_loss",
    "train/loss",
    "loss_step",
    "train_loss_step",
    "train/loss_step",
)
"""The training loss, by the names used in Lightning's own examples."""


class TrainerLines:
    """Reads the bars and dictionaries of one pod's logs.

    Attributes:
        votes: ends of bars in whose midst losses came, with how often.
        lightning: Lightning logged that it begins.
    """

    def __init__(self) -> None:
        self.votes: Counter[int] = Counter()
        self.lightning = False
        self._open_total: int | None = None

    def read_banner(self, words: bytes) -> None:
        """Record that Lightning has started: it prints the devices that it uses."""
        if words.startswith(BANNER) and b", used: " in words:
            self.lightning = True

    def read_bar(self, bar: Bar) -> StepLine | None:
        """Return a line from a bar; None if it counts something other than training steps."""
        if _EPOCH.fullmatch(bar.description):
            if "v_num" not in bar.postfix and not self.lightning:
                return None
            loss = next((bar.postfix[name] for name in _LOSSES if name in bar.postfix), None)
            return StepLine(
                LIGHTNING,
                step=bar.done,
                step_seconds=bar.unit_seconds,
                loss=None if loss is None else number(loss),
            )
        if bar.description or bar.total is None or bar.postfix:
            return None
        self._open_total = bar.total
        # Evaluation has such a bar too; the training bar is the one among which losses are printed.
        if not self.votes or self.votes.most_common(1)[0][0] != bar.total:
            return None
        return StepLine(HF_TRAINER, step=bar.done, step_seconds=bar.unit_seconds)

    def read_dictionary(self, words: bytes) -> StepLine | None:
        """Read what the Trainer prints; return None if another program printed it."""
        if len(words) > MAX_DICTIONARY or not _DICTIONARY.match(words):
            return None
        items = {name: value.strip(b"'") for name, value in _ITEM.findall(words)}
        if b"epoch" not in items:
            return None
        if b"train_runtime" in items:
            return StepLine(
                HF_TRAINER,
                samples_per_second=_positive(items.get(b"train_samples_per_second")),
                tokens_per_second=_positive(items.get(b"train_tokens_per_second")),
            )
        if b"learning_rate" not in items or math.isnan(number(items[b"epoch"])):
            return None
        known = self._open_total in self.votes or len(self.votes) < MAX_TOTALS
        if self._open_total is not None and known:
            self.votes[self._open_total] += 1
        return StepLine(HF_TRAINER, loss=number(items[b"loss"]))


def _positive(text: bytes | None) -> float | None:
    return None if text is None else rate(number(text))
