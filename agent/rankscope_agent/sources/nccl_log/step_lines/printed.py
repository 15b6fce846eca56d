"""Lines about steps that training scripts print: a table of formats, each with its source.

A format is matched where the line's own words begin, or anywhere in the line. Names of groups:
step, loss, seconds, milliseconds, per_second (steps), rate (samples), batch (samples per step),
gpu_tokens (per second) and gpu_teraflops (likewise).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rankscope_agent.sources.nccl_log.step_lines.patterns import NUMBER, RATES, value, with_commas
from rankscope_agent.sources.nccl_log.step_lines.values import (
    JAX,
    KERAS,
    MXNET,
    NEMO,
    PADDLE,
    PYTORCH,
    TORCHTUNE,
    XGBOOST,
    StepLine,
    number,
    rate,
    seconds,
)

LOSS_MARK = b"oss"
TAB_MARKS = (b"\ttrain-", b"\tSpeed: ")
MARKS = (LOSS_MARK, *TAB_MARKS)
"""Every format contains one of these: loss and Loss, XGBoost's metric, MXNet's speed."""

MAX_WORDS = 2048
"""Bytes of a line that are matched: the longest known, of PaddleDetection, have fewer than 600."""

_LOSS = rb"(?P<loss>" + NUMBER + rb")"
_STEP = rb"(?P<step>\d{1,12})"
_COUNT = _STEP + rb"(?:[/ ]{1,3}(?:of )?\d{1,12})?"
_EPOCH = rb"[Ee]poch:? {0,2}[#(\[]?\d{1,9}(?:/\d{1,9})?[)\]]?"
_WORD = rb"(?:[Ss]tep|[Ii]ter(?:ation)?|[Bb]atch|global_step|it)"
_COLOUR = rb"(?:\x1b\[[\d;]{1,20}m)?"
_APART = rb"(?:(?<![\w.])|(?<=\dm))"
"""Not part of a longer word, but possibly after a colour code, which ends in a digit and m."""
_SEPARATOR = rb"[\s,;:|\-]{0,8}"


LOSS = value(rb"(?<![\w.])loss[:=] {0,8}")
BATCH_COST = value(rb"\bbatch_cost: ", b"seconds")
OWN_MILLISECONDS = value(
    rb"[|,;] {0,4}(?:(?:[Ss]tep|[Ii]ter(?:ation)?|[Bb]atch)[_ ])?(?:dt|[Tt]ime)?[:=]? {0,4}",
    b"milliseconds",
    rb" ?ms\b",
)
"""Of a step, not of a named part of it: `data time: 5ms`."""

IPS = value(rb"\bips: ", b"rate")


class Format(NamedTuple):
    """One kind of line: how it begins, and the values searched for after that.

    Each is found in one pass over the line, so that no line takes long.

    Args:
        framework: the framework that prints it.
        head: matched where the line's own words begin.
        needed: a value without which it is another kind of line; None for none.
        others: values that may be present.
        anywhere: whether the head is searched in the whole line, because its words begin with a
            bracket or after a logger's name.
    """

    framework: str
    head: re.Pattern[bytes]
    needed: re.Pattern[bytes] | None = LOSS
    others: Sequence[re.Pattern[bytes]] = ()
    anywhere: bool = False


FORMATS: Sequence[Format] = (
    # xgboost/callback.py, EvaluationMonitor: [10]\ttrain-rmse:0.1; auc and the like are no losses.
    Format(
        XGBOOST,
        re.compile(
            rb"\[" + _STEP + rb"\]\ttrain-"
            rb"\w{0,12}?(?:rmse|rmsle|mae|mape|mphe|logloss|error|nloglik)(?:@[\d.]{1,9})?:" + _LOSS
        ),
        needed=None,
        anywhere=True,
    ),
    # mxnet/callback.py, Speedometer: Epoch[0] Batch [100]\tSpeed: 1234.5 samples/sec\taccuracy=0.1
    Format(
        MXNET,
        re.compile(rb"Epoch\[\d{1,9}\] Batch \[(?:\d{1,12}-)?" + _STEP + rb"\]\tSpeed: "),
        needed=value(b"", b"rate", b" samples/sec"),
        others=(value(rb"\b(?:loss|cross-entropy|mse|rmse)="),),
    ),
    # nemo/lightning/pytorch/callbacks/progress_printer.py
    Format(
        NEMO,
        re.compile(rb"Training epoch \d{1,9}, iteration \d{1,12}/\d{1,12} \|"),
        needed=value(rb"\breduced_train_loss: "),
        others=(
            value(rb"\bglobal_step: ", b"step"),
            value(rb"\btrain_step_timing in s: ", b"seconds"),
            value(rb"\bglobal_batch_size: ", b"batch"),
        ),
    ),
    # torchtune/training/metric_logging.py: Step 10 | loss:1.25 lr:2e-05 tokens_per_second_per_gpu:9
    Format(
        TORCHTUNE,
        re.compile(rb"Step " + _STEP + rb" \| (?=loss:)"),
        others=(value(rb"\btokens_per_second_per_gpu:", b"gpu_tokens"),),
    ),
    # torchtune's bar, whose description contains bars: 1|25|Loss: 1.25:   5%|
    Format(TORCHTUNE, re.compile(rb"\d{1,9}\|" + _STEP + rb"\|Loss: " + _LOSS), needed=None),
    # paddlenlp/trainer: loss: 10.1, learning_rate: 1e-05, global_step: 10, interval_runtime: 1.2
    Format(
        PADDLE,
        re.compile(rb"loss: " + _LOSS + rb", learning_rate: "),
        needed=value(rb"\bglobal_step: ", b"step"),
        others=(
            value(rb"\binterval_samples_per_second: ", b"rate"),
            value(rb"\binterval_steps_per_second: ", b"per_second"),
            value(rb"\binterval_tokens_per_second_per_device: ", b"gpu_tokens"),
            value(rb"\binterval_hardware_tflops_per_device: ", b"gpu_teraflops"),
        ),
    ),
    # PaddleClas: [Train][Epoch 1/120][Iter: 10/5004]lr(..): .., loss: 7.01, batch_cost: 0.5s
    Format(
        PADDLE,
        re.compile(rb"\[Train\]\[Epoch \d{1,9}/\d{1,9}\]\[Iter: {0,8}" + _COUNT + rb"\]"),
        others=(BATCH_COST, IPS),
        anywhere=True,
    ),
    # PaddleDetection: Epoch: [0] [ 20/7329] learning_rate: .. loss: 1.2 .. batch_cost: 0.5
    Format(
        PADDLE,
        re.compile(rb"Epoch: \[\d{1,9}\] \[ {0,12}" + _COUNT + rb"\] learning_rate: "),
        others=(BATCH_COST, IPS),
        anywhere=True,
    ),
    # keras/utils/progbar.py, with a bar, and without one (verbose=2)
    Format(
        KERAS,
        re.compile(
            rb"(?:\x1b\[\d{0,2}m)?" + _STEP + rb"/\d{1,12}(?:\x1b\[0m)? (?=[\[\-\x1b\xe2])"
        ),
        others=(
            value(rb" ", b"milliseconds", rb"ms/step"),
            value(rb" ", b"seconds", rb"s/step"),
        ),
    ),
    # clu/metric_writers/logging_writer.py: [100] accuracy=0.5, loss=1.25, steps_per_second=10.3
    Format(
        JAX,
        re.compile(rb"logging_writer\.py:\d{1,6}\] \[" + _STEP + rb"\] "),
        needed=value(rb"(?<![\w.])(?:train_|train/)?loss="),
        others=(
            value(rb"\bsteps_per_sec(?:ond)?=", b"per_second"),
            value(rb"\b(?:examples|images|samples)_per_sec(?:ond)?=", b"rate"),
        ),
        anywhere=True,
    ),
    # MaxText/metric_logger.py
    Format(
        JAX,
        re.compile(
            rb"completed step: " + _STEP + rb", seconds: (?P<seconds>" + NUMBER + rb"), (?=TFLOP)"
        ),
        others=(
            value(rb" Tokens/s/device: ", b"gpu_tokens"),
            value(rb"TFLOP/s/device: ", b"gpu_teraflops"),
        ),
        anywhere=True,
    ),
    # nanoGPT: iter 100: loss 2.5, time 123.45ms, mfu 12.34%
    Format(
        PYTORCH,
        re.compile(rb"iter " + _STEP + rb": loss " + _LOSS),
        needed=None,
        others=(value(rb", time ", b"milliseconds", b"ms"),),
    ),
    # torchtitan/components/metrics.py: step: 10  loss:  8.12  grad_norm:  1.2 .. tps: 3,456, where
    # each value has its own colour unless that is switched off
    Format(
        PYTORCH,
        re.compile(
            _APART + rb"step: {1,8}" + _STEP + rb" {1,4}" + _COLOUR + rb"loss: {1,8}" + _LOSS
            + rb" {1,4}" + _COLOUR + rb"(?:grad_norm|memory): "
        ),
        needed=None,
        others=(
            with_commas(_APART + rb"tps: ", b"gpu_tokens"),
            with_commas(_APART + rb"tflops: ", b"gpu_teraflops"),
        ),
        anywhere=True,
    ),
    # pytorch/examples, mnist: Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.92, in samples of the epoch
    Format(
        PYTORCH,
        re.compile(
            rb"Train Epoch: \d{1,9} \[\d{1,12}/\d{1,12} \(\d{1,3}%\)\]\s{1,4}Loss: " + _LOSS
        ),
        needed=None,
    ),
    # pytorch/examples, imagenet: Epoch: [0][ 10/5005]\tTime  0.402 ( 1.093)\t..\tLoss 7.0 (..)
    Format(
        PYTORCH,
        re.compile(
            rb"Epoch: \[\d{1,9}\]\[ {0,9}" + _COUNT
            + rb"\]\tTime {1,6}(?P<seconds>" + NUMBER + rb")"
        ),
        needed=value(rb"\tLoss {1,4}"),
    ),
    # torchvision/references, utils.MetricLogger: Epoch: [0]  [  10/1251]  eta: ..  loss: 6.9 (6.95)
    Format(
        PYTORCH,
        re.compile(rb"Epoch: \[\d{1,9}\] {1,3}\[ {0,9}" + _COUNT + rb"\] {1,3}eta: "),
        others=(value(rb" time: ", b"seconds"),),
    ),
    # timm's train.py: Train: 0 [  10/1251 (  1%)]  Loss: 6.92 (6.95)  Time: 0.402s, 2547.26/s  (..)
    Format(
        PYTORCH,
        re.compile(rb"Train: \d{1,9} \[ {0,9}" + _COUNT + rb" \( {0,3}\d{1,3}%\)\] {1,4}"),
        needed=value(rb"\bLoss: {1,8}"),
        others=(
            value(rb"\bTime: {1,8}", b"seconds", rb"s,"),
            value(rb"\bTime: {1,8}[\d.]{1,20}s, {1,8}", b"rate", rb"/s"),
        ),
        anywhere=True,
    ),
    # mmengine/runner/log_processor.py: Epoch(train)  [1][  10/1251]  lr: .. time: 0.5 .. loss: 6.9
    Format(
        PYTORCH,
        re.compile(
            rb"(?:Epoch\(train\) {1,4}\[ {0,9}\d{1,9}\]|Iter\(train\) {1,4})\[ {0,9}" + _COUNT
            + rb"\]"
        ),
        others=(value(rb" time: ", b"seconds"),),
        anywhere=True,
    ),
    # detectron2/utils/events.py: eta: 0:10:11  iter: 19  total_loss: 2.345 .. time: 0.3521  ..
    Format(
        PYTORCH,
        re.compile(rb" iter: " + _STEP + rb" {1,4}total_loss: " + _LOSS),
        needed=None,
        others=(value(rb" time: ", b"seconds"),),
        anywhere=True,
    ),
    # Users' own scripts: Epoch: 0, Batch: 10, Loss: 0.51; Epoch [1/5], Step [100/600], Loss: 0.2
    Format(
        PYTORCH,
        re.compile(
            rb"(?:" + _EPOCH + _SEPARATOR + rb")?" + _WORD + rb"[:=]? {0,8}[#(\[]? {0,8}" + _COUNT
            + rb" {0,8}[)\]]?" + _SEPARATOR
            + rb"(?:[Tt]rain(?:ing)?[ _/])?[Ll]oss\b[:=\s]{1,4}" + _LOSS
        ),
        needed=None,
        others=(OWN_MILLISECONDS, *RATES),
    ),
)  # fmt: skip
"""In the order in which they are tried: those of frameworks before generic ones."""


def read(line: bytes, words: bytes) -> StepLine | None:
    """Read a line; return None if it has no known format.

    Args:
        line: the whole line.
        words: its own words, after the prefixes of launchers and loggers.
    """
    line, words = line[:MAX_WORDS], words[:MAX_WORDS]
    for kind in FORMATS:
        text = line if kind.anywhere else words
        head = kind.head.search(text) if kind.anywhere else kind.head.match(text)
        if head is not None:
            values = _values(kind, text, head)
            if values is not None:
                return line_of(kind.framework, values)
    return None


def _values(kind: Format, text: bytes, head: re.Match[bytes]) -> dict[str, bytes | None] | None:
    """Return the values of a line that begins like a format; None without the one needed."""
    values: dict[str, bytes | None] = head.groupdict()
    for pattern in filter(None, (kind.needed, *kind.others)):
        found = pattern.search(text, head.end())
        if found is not None:
            values.update(found.groupdict())
        elif pattern is kind.needed:
            return None
    return values


def line_of(framework: str, values: dict[str, bytes | None]) -> StepLine:
    """Return a line's values from the groups of its pattern; implausible ones are left out."""
    loss = values.get("loss")
    step_seconds = _step_seconds(values)
    return StepLine(
        framework,
        step=_step(values.get("step")),
        step_seconds=step_seconds,
        samples_per_second=_samples_per_second(values, step_seconds),
        tokens_per_second=_known(rate, _plain(values.get("tokens_per_second"))),
        gpu_tokens_per_second=_known(rate, _plain(values.get("gpu_tokens"))),
        gpu_flops_per_second=_known(_flops, _plain(values.get("gpu_teraflops"))),
        loss=None if loss is None else number(loss),
    )


def _step(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) <= 12 else None


def _step_seconds(values: dict[str, bytes | None]) -> float | None:
    for name, factor in (("seconds", 1.0), ("milliseconds", 1e-3)):
        text = values.get(name)
        if text is not None:
            return seconds(number(text) * factor)
    text = values.get("per_second")
    per_second = number(text) if text is not None else 0.0
    return seconds(1 / per_second) if per_second > 0 else None


def _samples_per_second(
    values: dict[str, bytes | None], step_seconds: float | None
) -> float | None:
    printed = values.get("rate") or values.get("samples_per_second")
    batch = values.get("batch")
    if printed is None and batch is not None and step_seconds is not None:
        return rate(number(batch) / step_seconds)
    return _known(rate, _plain(printed))


def _plain(text: bytes | None) -> bytes | None:
    return None if text is None else text.replace(b",", b"")


def _flops(teraflops: float) -> float | None:
    known = rate(teraflops)
    return None if known is None else known * 1e12


def _known(check: Callable[[float], float | None], text: bytes | None) -> float | None:
    return None if text is None else check(number(text))
