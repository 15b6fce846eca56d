"""What frameworks print about steps: which lines are read, what they say, and which are refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_lines.values import (
    DEEPSPEED,
    HF_TRAINER,
    LIGHTNING,
    MEGATRON,
    Progress,
    StepFacts,
)

NOW = 1_795_000_000.0

MEGATRON_LINE = (
    " [2026-11-21 02:14:00.123456] iteration      120/    5000 | consumed samples:        30720 |"
    " elapsed time per iteration (ms): 512.0 | throughput per GPU (TFLOP/s/GPU): 401.5 |"
    " learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 2.345678E+00 |"
    " loss scale: 1.0 | grad norm: 0.812 | number of skipped iterations:   1 |"
    " number of nan iterations:   0 |"
)
MEGATRON_DEEPSPEED_LINE = (
    " iteration       10/     100 | consumed samples:          640 | consumed tokens: 1310720 |"
    " elapsed time per iteration (s): 2.50 | learning rate: 3.000E-05 | global batch size:    64 |"
    " lm loss: 9.1E+00 | grad norm: 1.0 | samples per second: 25.6 | TFLOPs: 150.25 |"
)
DEEPSPEED_STEP = (
    "[2026-11-21 02:14:{second:02d},250] [INFO] [logging.py:96:log_dist] [Rank 0] step={step},"
    " skipped={skipped}, lr=[0.0001, 0.0001], mom=[(0.9, 0.95), (0.9, 0.95)]"
)
DEEPSPEED_SPEED = (
    "[2026-11-21 02:14:10,251] [INFO] [timer.py:264:stop] epoch=0/micro_step=80/global_step=20,"
    " RunningAvgSamplesPerSec=210.5, CurrSamplesPerSec=230.25, MemAllocated=10.5GB,"
    " MaxMemAllocated=31.2GB"
)
PIPELINE = "steps: 40 loss: 6.1250 router loss: 0.0100 iter time (s): 0.400 samples/sec: 640.000"
HF_LOSS = "{'loss': '1.25', 'grad_norm': '2.5', 'learning_rate': '4.4e-05', 'epoch': '0.25'}"
HF_OLD_LOSS = "{'loss': 1.25, 'grad_norm': 2.5, 'learning_rate': 4.4e-05, 'epoch': 0.25}"
HF_END = (
    "{'train_runtime': '60.5', 'train_samples_per_second': '81.5', 'train_steps_per_second':"
    " '20.4', 'train_loss': '1.1', 'epoch': '2'}"
)
LIGHTNING_BAR = (
    "Epoch 3:  45%|████▌     | 423/938 [00:05<00:06, 80.00it/s, v_num=7, train_loss=0.345]"
)


def bar(done: int, total: int, rate: str = "4.00it/s") -> str:
    percent = round(100 * done / total)
    return f"{percent:3d}%|{'█' * (percent // 10):10}| {done}/{total} [00:10<01:30,  {rate}]"


def read(*lines: str, end: str = "\n", written: float | None = None) -> StepFacts:
    log = StepLog()
    text = "".join(f"{line}{end}" for line in lines).encode()
    log.feed(text, NOW, written)
    return log.facts


def only(facts: StepFacts, framework: str) -> Progress:
    assert list(facts.frameworks) == [framework]
    return facts.frameworks[framework]


def test_megatron_says_step_time_throughput_and_loss():
    said = only(read(MEGATRON_LINE), MEGATRON)
    assert (said.step, said.step_seconds, said.loss) == (120, 0.512, 2.345678)
    assert said.samples_per_second == pytest.approx(500.0)
    assert said.gpu_flops_per_second == pytest.approx(401.5e12)
    assert (said.skipped, said.lines, said.last_line) == (1, 1, NOW)


def test_a_loss_that_megatron_left_out_as_no_number_hides_the_one_before():
    some = MEGATRON_LINE.replace("nan iterations:   0", "nan iterations:   1")
    every = some.replace(" lm loss: 2.345678E+00 |", "")
    assert only(read(some), MEGATRON).loss == 2.345678
    said = only(read(MEGATRON_LINE, every), MEGATRON)
    assert (said.loss, said.nonfinite_losses) == (None, 1)


def test_megatron_deepspeed_prints_seconds_and_rates():
    said = only(read(MEGATRON_DEEPSPEED_LINE), MEGATRON)
    assert (said.step, said.step_seconds, said.loss) == (10, 2.5, 9.1)
    assert said.samples_per_second == 25.6
    assert said.gpu_flops_per_second == pytest.approx(150.25e12)
    assert said.skipped is None


def test_deepspeeds_step_time_is_told_by_its_own_time_stamps():
    lines = [
        DEEPSPEED_STEP.format(second=0, step=10, skipped=2),
        DEEPSPEED_STEP.format(second=5, step=20, skipped=3),
        DEEPSPEED_SPEED,
    ]
    said = only(read(*lines), DEEPSPEED)
    assert (said.step, said.step_seconds) == (20, 0.5)
    assert said.samples_per_second == 230.25
    assert said.skipped == 3


@pytest.mark.parametrize(
    "counted",
    [
        "0/80, RunningAvgSamplesPerSec=210.5, CurrSamplesPerSec=230.25, MemAllocated=10.5GB,",
        "0/80, SamplesPerSec=230.25, MemAllocated=10.5GB, MaxMemAllocated=31.2GB",
        "0/80, SamplesPerSec=230.25",
    ],
)
def test_older_deepspeeds_count_micro_steps_which_are_no_steps(counted):
    said = only(read(f"[2022-08-29 06:58:56,176] [INFO] [timer.py:198:stop] {counted}"), DEEPSPEED)
    assert (said.step, said.samples_per_second) == (None, 230.25)


def test_deepspeeds_rate_of_learning_may_be_a_tensor():
    line = DEEPSPEED_STEP.format(second=0, step=10, skipped=0)
    tensor = line.replace("lr=[0.0001, 0.0001]", "lr=[tensor([0.0001], device='cuda:0')]")
    assert only(read(tensor), DEEPSPEED).step == 10


def test_deepspeeds_first_step_has_no_time():
    said = only(read(DEEPSPEED_STEP.format(second=0, step=10, skipped=0)), DEEPSPEED)
    assert said.step_seconds is None


def test_deepspeed_that_begins_anew_has_no_time_below_zero():
    lines = [
        DEEPSPEED_STEP.format(second=0, step=500, skipped=7),
        DEEPSPEED_STEP.format(second=30, step=10, skipped=1),
        DEEPSPEED_STEP.format(second=40, step=20, skipped=1),
    ]
    said = only(read(*lines), DEEPSPEED)
    assert (said.step, said.step_seconds, said.skipped) == (20, 1.0, 8)


def test_deepspeeds_pipeline_says_time_and_loss_itself():
    said = only(read(PIPELINE), DEEPSPEED)
    assert (said.step, said.step_seconds, said.loss) == (40, 0.4, 6.125)
    assert said.samples_per_second == 640.0


def test_the_trainers_bar_counts_once_a_loss_came_in_its_midst():
    assert not read(bar(10, 80)).frameworks
    said = only(read(bar(10, 80), HF_LOSS, bar(20, 80)), HF_TRAINER)
    assert (said.step, said.step_seconds, said.loss) == (20, 0.25, 1.25)


def test_the_trainers_evaluation_has_a_bar_that_counts_no_steps():
    lines = [bar(20, 80), HF_LOSS, bar(5, 10, "40.00it/s"), bar(10, 10, "40.00it/s")]
    said = read(*lines).frameworks[HF_TRAINER]
    assert (said.step, said.step_seconds) == (None, None)
    said = only(read(*lines, bar(40, 80), HF_LOSS, bar(9, 10), bar(41, 80)), HF_TRAINER)
    assert said.step == 41


@pytest.mark.parametrize("line", [HF_LOSS, HF_OLD_LOSS])
def test_losses_of_every_version_of_the_trainer_are_read(line):
    assert only(read(line), HF_TRAINER).loss == 1.25


def test_the_end_of_the_trainer_gives_its_throughput():
    assert only(read(HF_END), HF_TRAINER).samples_per_second == 81.5


def test_steps_slower_than_a_second_are_printed_the_other_way_round():
    assert (
        read(bar(10, 80), HF_LOSS, bar(20, 80, "2.50s/it")).frameworks[HF_TRAINER].step_seconds
        == 2.5
    )


def test_lightnings_bar_says_batch_time_and_loss():
    said = only(read(LIGHTNING_BAR), LIGHTNING)
    assert (said.step, said.step_seconds, said.loss) == (423, 0.0125, 0.345)


def test_lightning_without_a_logger_is_known_by_its_first_words():
    nameless = LIGHTNING_BAR.replace("v_num=7, ", "")
    assert not read(nameless).frameworks
    assert only(read("GPU available: True (cuda), used: True", nameless), LIGHTNING).step == 423


def test_lightnings_rich_bar_is_read():
    line = (
        "Epoch 1/9  ━━━━━━━━━━╸━━━━━━━━━━ 40/80 0:00:02 • 0:00:02 20.00it/s v_num: 1.000 loss: 0.5"
    )
    said = only(read(line), LIGHTNING)
    assert (said.step, said.step_seconds, said.loss) == (40, 0.05, 0.5)


def test_bars_overwrite_themselves_without_a_line_end():
    framing, log = Unframer(max_pending=4096), StepLog()
    for done in range(1, 80):
        text = (
            f"\r{LIGHTNING_BAR.replace('423', str(done)).replace('45%', f'{done * 100 // 938}%')}"
        )
        log.feed(framing.feed(text.encode()), NOW, None)
    assert log.facts.frameworks[LIGHTNING].step == 78  # the last one may not be whole


def test_bars_that_the_runtime_cuts_into_parts_are_read_before_their_line_ends():
    framing, log = Unframer(max_pending=64 << 10), StepLog()
    bars = "".join(f"\r{LIGHTNING_BAR}" for _ in range(8))
    head = "2026-11-21T02:14:00.123456789Z stderr P "
    log.feed(framing.feed(f"{head}{bars[:500]}\n{head}{bars[500:]}\n".encode()), NOW, None)
    assert log.facts.frameworks[LIGHTNING].lines == 7


FRAMES = (
    "{}",
    "2026-11-21T02:14:00.123456789Z stdout F {}",
    "2026-11-21T02:14:00.1+01:00 stderr F [default7]:{}",
    "[default3]:{}",
    "[rank7]: {}",
    "7: {}",
    "[1,7]<stdout>:{}",
    "(RayTrainWorker pid=4711, ip=10.0.0.5) {}",
    "[pod/trainer-3/main] {}",
    "trainer-1  | {}",
    "Nov 21 02:14:00 gpu-00 train[4711]: {}",
    "INFO:root:{}",
    "2026-11-21 02:14:00,123 - INFO - {}",
)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("line", "framework"),
    [
        (MEGATRON_LINE, MEGATRON),
        (DEEPSPEED_SPEED, DEEPSPEED),
        (PIPELINE, DEEPSPEED),
        (HF_LOSS, HF_TRAINER),
        (LIGHTNING_BAR, LIGHTNING),
    ],
)
def test_lines_are_read_in_every_wrapping(frame, line, framework):
    facts = read(frame.format(line))
    assert only(facts, framework).lines == 1
    assert facts.refused == 0


LOOK_ALIKES = (
    # told, quoted, documented or shown as data
    f'He wrote: "{MEGATRON_LINE}"',
    f"sample 17: text = '{MEGATRON_LINE.strip()}'",
    f"assert parse({HF_LOSS!r})",
    f"prompt> explain {HF_LOSS} please",
    f"expected output: {DEEPSPEED_SPEED}",
    # other lines of the same programs
    " validation loss at iteration 120 | lm loss value: 2.3E+00 | lm loss PPL: 1.0E+01 |",
    "{'eval_loss': '1.2', 'eval_runtime': '0.3', 'eval_samples_per_second': '254', 'epoch': '1'}",
    "{'loss': 1.25, 'accuracy': 0.5}",
    "{'loss': [1.0, 2.0], 'learning_rate': 1, 'epoch': 1}",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 40.00it/s]",
    "Loading checkpoint shards:  50%|█████     | 2/4 [00:02<00:02,  1.10s/it]",
    "Map:  50%|█████     | 5000/10000 [00:02<00:02, 2000.00 examples/s]",
    "Epoch 3:  45%|████▌     | 423/938 [00:05<00:06, 80.00it/s, loss=0.3]",
    # numbers that contradict themselves
    MEGATRON_LINE.replace("120/    5000", "9000/    5000"),
    MEGATRON_LINE.replace("512.0", "-3.0"),
    MEGATRON_LINE.replace("512.0", "nan"),
    MEGATRON_LINE.replace("512.0", "9e99"),
    MEGATRON_LINE.replace("| learning rate: 1.500000E-04 ", ""),
    MEGATRON_LINE[:150],
    LIGHTNING_BAR.replace("423/938", "9999/938"),
    LIGHTNING_BAR.replace("45%", "99%"),
    # options and sentences
    "  steps_per_print ............................. 10, skipped=0, lr=[0.1], mom=[]",
    "average iter time (s): 0.4 is what we want; SamplesPerSec=12 would do",
    "the model reached 4.00it/s on one GPU and 2.5s/it on the other",
)


@pytest.mark.parametrize("line", LOOK_ALIKES)
def test_lines_that_look_like_steps_and_are_none_are_refused(line):
    assert not read(line).frameworks


def test_refused_lines_are_counted():
    assert read(LOOK_ALIKES[0], LOOK_ALIKES[4]).refused == 2


def test_a_loss_that_is_no_number_is_counted_and_hides_the_one_before():
    lines = [MEGATRON_LINE, MEGATRON_LINE.replace("2.345678E+00", "NAN")]
    said = only(read(*lines), MEGATRON)
    assert (said.loss, said.nonfinite_losses) == (None, 1)


PIECES = [
    *(line.encode() for line in LOOK_ALIKES),
    *(frame.encode() for frame in FRAMES),
    MEGATRON_LINE.encode(),
    DEEPSPEED_SPEED.encode(),
    PIPELINE.encode(),
    HF_LOSS.encode(),
    bar(3, 80).encode(),
    LIGHTNING_BAR.encode(),
    b"{'loss': ",
    b"\r",
    b"\n",
    b": opCount ",
    b"\x1b[A\x00\xff",
    b"9" * 400,
]


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=30)), max_size=15),
    st.integers(1, 300),
)
def test_any_text_gives_values_that_can_be_or_none(pieces, size):
    framing, log = Unframer(max_pending=1000), StepLog()
    text = b"".join(pieces)
    for begin in range(0, len(text), size):
        log.feed(framing.feed(text[begin : begin + size]), NOW, NOW)
    log.feed(framing.finish(), NOW, None)
    log.sum_up(NOW)
    for said in log.facts.frameworks.values():
        for value in (said.step_seconds, said.samples_per_second, said.gpu_flops_per_second):
            assert value is None or (value > 0 and math.isfinite(value))
        assert said.loss is None or math.isfinite(said.loss)
