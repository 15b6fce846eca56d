"""What scripts and frameworks print about steps: each format's line, and lines that are none."""

from __future__ import annotations

import pytest

from rankscope_agent.sources.nccl_log.step_lines import printed
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_lines.printed import FORMATS
from rankscope_agent.sources.nccl_log.step_lines.values import FRAMEWORKS

NOW = 1_795_000_000.0
TORCHVISION = (
    "Epoch: [0]  [  10/1251]  eta: 0:10:11  lr: 0.1  img/s: 350  loss: 6.9123 (6.9500)"
    "  acc1: 0.0  time: 0.4881  data: 0.2  max mem: 1234"
)
IMAGENET = (
    "Epoch: [0][  10/5005]\tTime  0.402 ( 1.093)\tData  0.000 ( 0.318)"
    "\tLoss 7.0012e+00 (7.0500e+00)\tAcc@1   0.00 (  0.12)"
)
PADDLENLP = (
    "[2026-11-23 04:00:00,000] [    INFO] - loss: 10.1, learning_rate: 1e-05, global_step: 10,"
    " interval_runtime: 1.2, interval_samples_per_second: 6.4, interval_steps_per_second: 0.8"
)
PADDLECLAS = (
    "[2026/11/23 04:00:00] ppcls INFO: [Train][Epoch 1/120][Iter: 10/5004]lr(Linear): 0.001,"
    " top1: 0.0, CELoss: 7.5, loss: 7.01, batch_cost: 0.50000s, reader_cost: 0.1,"
    " ips: 512.3 samples/s, eta: 1"
)
PADDLEDETECTION = (
    "[11/23 04:00:00] ppdet.engine INFO: Epoch: [0] [  20/7329] learning_rate: 0.000100"
    " loss: 1.234 loss_cls: 0.5 eta: 1 batch_cost: 0.5123 data_cost: 0.1 ips: 4.1 images/s"
)
NEMO = (
    "Training epoch 0, iteration 10/999 | lr: 1e-05 | global_batch_size: 32 | global_step: 10 |"
    " reduced_train_loss: 10.1 | train_step_timing in s: 1.23 | consumed_samples: 352"
)
MAXTEXT = (
    "completed step: 10, seconds: 1.234, TFLOP/s/device: 150.2, Tokens/s/device: 3456.7,"
    " total_weights: 65536, loss: 9.876"
)
CLU = (
    "I1123 04:00:00.123456 140 logging_writer.py:48] [100] accuracy=0.5, loss=1.234,"
    " steps_per_second=10.0"
)
TITAN = (
    "[rank0]:[titan] 2026-11-23 04:00:00,123 - root - INFO - step: 10  loss:  8.1234"
    "  grad_norm:  1.2000  memory: 20.11GiB(50.00%)  tps: 3,456"
)
TIMM = (
    "Train: 0 [  10/1251 (  1%)]  Loss: 6.92 (6.95)  Time: 0.402s, 2547.26/s"
    "  (1.093s,  936.87/s)  LR: 1.000e-05  Data: 0.010 (0.318)"
)
MMENGINE = (
    "11/23 04:00:00 - mmengine - INFO - Epoch(train)  [1][  10/1251]  lr: 1.0000e-02"
    "  eta: 1 day, 1:10:11  time: 0.4881  data_time: 0.0123  memory: 3081  loss: 6.9123"
)
MMENGINE_ITERATIONS = (
    "2026/11/23 04:00:00 - mmengine - INFO - Iter(train) [    50/160000]  base_lr: 9.9e-03"
    "  lr: 9.9e-03  eta: 9:10:11  time: 0.2  data_time: 0.1  memory: 3081  loss: 2.5  aux: 0.5"
)
DETECTRON = (
    "[11/23 04:00:00 d2.utils.events]:  eta: 0:10:11  iter: 19  total_loss: 2.345  loss_cls: 1.2"
    "    time: 0.3521  last_time: 0.3  data_time: 0.0123  lr: 0.00039962  max_mem: 3081M"
)
CLU_IMAGES = CLU + ", images_per_second=1280.5, images_per_second_per_core=160.1"
MXNET = "INFO:root:Epoch[0] Batch [0-100]\tSpeed: 1234.56 samples/sec\tcross-entropy=2.3"
KERAS = "1875/1875 [==============================] - 5s 2ms/step - loss: 0.29 - accuracy: 0.9"
KERAS_3 = "469/469 - 2s - 5ms/step - accuracy: 0.9258 - loss: 0.2561 - val_loss: 0.5"

LINES = (
    ("Epoch: 0, Batch: 10, Loss: 0.51", "pytorch", 10, 0.51, None, None),
    ("Epoch [1/5], Step [100/600], Loss: 0.2345", "pytorch", 100, 0.2345, None, None),
    ("epoch 3 | step 7 | loss 1e-3", "pytorch", 7, 1e-3, None, None),
    ("2026-11-23T04:00:00.5Z stdout F Step 5: train loss = 0.3", "pytorch", 5, 0.3, None, None),
    ("[rank0]: iter 100: loss 2.5, time 120.0ms, mfu 12.3%", "pytorch", 100, 2.5, 0.12, None),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.92", "pytorch", None, 0.92, None, None),
    (IMAGENET, "pytorch", 10, 7.0012, 0.402, None),
    (TORCHVISION, "pytorch", 10, 6.9123, 0.4881, None),
    (TITAN, "pytorch", 10, 8.1234, None, None),
    (TIMM, "pytorch", 10, 6.92, 0.402, 2547.26),
    (MMENGINE, "pytorch", 10, 6.9123, 0.4881, None),
    (MMENGINE_ITERATIONS, "pytorch", 50, 2.5, 0.2, None),
    (DETECTRON, "pytorch", 19, 2.345, 0.3521, None),
    (KERAS, "keras", 1875, 0.29, 0.002, None),
    (KERAS_3, "keras", 469, 0.2561, 0.005, None),
    (CLU, "jax", 100, 1.234, 0.1, None),
    (CLU_IMAGES, "jax", 100, 1.234, 0.1, 1280.5),
    (MAXTEXT, "jax", 10, 9.876, 1.234, None),
    ("[10]\ttrain-rmse:0.125\teval-rmse:0.2", "xgboost", 10, 0.125, None, None),
    ("[04:00:00] [11]\ttrain-mlogloss:0.5", "xgboost", 11, 0.5, None, None),
    (PADDLENLP, "paddle", 10, 10.1, 1.25, 6.4),
    (PADDLECLAS, "paddle", 10, 7.01, 0.5, 512.3),
    (PADDLEDETECTION, "paddle", 20, 1.234, 0.5123, 4.1),
    (MXNET, "mxnet", 100, 2.3, None, 1234.56),
    (
        "1|25|Loss: 1.25: 5%|5   | 25/500 [00:10<03:10,  2.50it/s]",
        "torchtune",
        25,
        1.25,
        None,
        None,
    ),
    ("Step 10 | loss:1.234 lr:2e-05", "torchtune", 10, 1.234, None, None),
    (NEMO, "nemo", 10, 10.1, 1.23, pytest.approx(32 / 1.23)),
)


def fed(*lines: str):
    log = StepLog()
    log.feed("".join(f"{line}\n" for line in lines).encode(), NOW, None)
    return log.facts


@pytest.mark.parametrize(
    ("line", "framework", "step", "loss", "seconds", "rate"), LINES, ids=range(len(LINES))
)
def test_a_line_gives_its_values(line, framework, step, loss, seconds, rate):
    (name,) = fed(line).frameworks
    known = fed(line).frameworks[name]
    assert (name, known.step, known.lines) == (framework, step, 1)
    assert (known.loss, known.samples_per_second) == (loss, rate)
    assert known.step_seconds == (None if seconds is None else pytest.approx(seconds))


def test_every_framework_of_the_table_has_a_line():
    assert {kind.framework for kind in FORMATS} == {line[1] for line in LINES}
    assert {kind.framework for kind in FORMATS} <= set(FRAMEWORKS)


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf"])
def test_a_loss_that_is_no_number_is_counted(text):
    known = fed("Epoch: 0, Batch: 9, Loss: 0.5", f"Epoch: 0, Batch: 10, Loss: {text}").frameworks
    assert (known["pytorch"].nonfinite_losses, known["pytorch"].loss) == (1, None)
    assert known["pytorch"].step == 10


@pytest.mark.parametrize(
    "line",
    [
        "Test set: Average loss: 0.0512, Accuracy: 9832/10000 (98%)",
        "Validation Epoch: 3, Loss: 0.2",
        "step 100: val loss 2.4",
        "the loss of step 10 was 0.5",
        "packets lost: 10, loss: 0.5",
        "469/469 - 2s - val_loss: 0.2",
        "[10]\ttrain-auc:0.9",
        "[10]\teval-rmse:0.9",
        "Epoch: 0, Batch: 10",
        "Epoch: 0, Batch: ten, Loss: 0.5",
        "Downloading loss.py: 45% 423/938",
        "Epoch: 0, Batch: 99999999999999, Loss: 0.5",
    ],
)
def test_other_lines_are_of_no_step(line):
    facts = fed(line)
    assert facts.frameworks == {}
    assert facts.refused == 0, "many lines speak of losses"


def test_lines_of_frameworks_that_were_known_before_are_read_as_theirs():
    pipeline = (
        "steps: 40 loss: 6.1250 router loss: 0.0100 iter time (s): 0.400 samples/sec: 640.000"
    )
    trainer = "{'loss': '1.25', 'grad_norm': '2.5', 'learning_rate': '4.4e-05', 'epoch': '0.25'}"
    assert set(fed(pipeline, trainer).frameworks) == {"deepspeed", "hf_trainer"}


def test_lines_that_match_nothing_end_and_leave_nothing():
    long = (
        *("1/9 -" + " - " * 3000, "Epoch " * 1500, "step " * 1600, "Epoch: [0] [" + " " * 8000),
        *("[1]\ttrain-" * 800, "logging_writer.py:1] [1] loss=" * 260, "step: " + " " * 8000),
    )
    for line in long:
        assert fed(f"{line[:8000]}loss").frameworks == {}


@pytest.mark.parametrize(("length", "is_read"), [(2048, True), (2049, False)])
def test_2048_bytes_of_a_line_are_matched(length, is_read):
    head, value = b"Training epoch 0, iteration 10/999 | ", b" reduced_train_loss: 7"
    line = head + b"x" * (length - len(head) - len(value)) + value
    assert (printed.read(line, line) is not None) is is_read
