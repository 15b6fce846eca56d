"""What frameworks and scripts print of throughput, of the whole job or of each GPU."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import job_logs as metrics
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_series import step_samples
from rankscope_agent.sources.pods.log_directories import PodIdentity

NOW = 1_795_000_000.0

TITAN = (
    "[rank0]:[titan] 2026-11-23 04:00:00,123 - root - INFO - step: 10  loss:  8.12340"
    "  grad_norm:  1.2000  memory: 20.11GiB(25.40%)  tps: 3,456  tflops: 1,012.50  mfu: 35.10%"
)
COLOURED = (
    "[rank0]:[titan] 2026-11-23 04:00:00,123 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:"
    "  8.12340  \x1b[38;2;180;60;0mgrad_norm:  1.2000  \x1b[38;2;54;234;195mmemory: 20.11GiB"
    "(25.40%)  \x1b[34mtps: 3,456  \x1b[36mtflops: 1,012.50  \x1b[35mmfu: 35.10%\x1b[39m"
)
TORCHTUNE = "Step 10 | loss:1.234 lr:2e-05 tokens_per_second_per_gpu:1523.4 peak_memory_alloc:9.1"
PADDLE = (
    "[2026-11-23 04:00:00,000] [    INFO] - loss: 12.0635252, learning_rate: 2e-06, global_step:"
    " 10, current_memory_allocated: 7.5, interval_runtime: 1.1518, interval_samples_per_second:"
    " 0.8682, interval_tokens_per_second_per_device: 889.0448,"
    " interval_hardware_tflops_per_device: 2.77, interval_steps_per_second: 0.8682"
)
MAXTEXT = (
    "completed step: 10, seconds: 1.234, TFLOP/s/device: 150.2, Tokens/s/device: 3456.7,"
    " total_weights: 65536, loss: 9.876"
)
HUGGING_FACE = (
    "{'train_runtime': 60.5, 'train_samples_per_second': 12.5, 'train_steps_per_second': 0.4,"
    " 'train_tokens_per_second': 25600.0, 'train_loss': 1.2, 'epoch': 1.0}"
)

WHOLE, GPU, FLOPS, SAMPLES = (
    metrics.JOB_LOG_TOKENS_RATE,
    metrics.JOB_LOG_GPU_TOKENS_RATE,
    metrics.JOB_LOG_GPU_FLOPS,
    metrics.JOB_LOG_SAMPLES_RATE,
)
RATES = (WHOLE, GPU, FLOPS, SAMPLES)
LINES = {
    "torchtitan": (TITAN, {GPU: 3456.0, FLOPS: 1.0125e15}),
    "torchtitan in colour": (COLOURED, {GPU: 3456.0, FLOPS: 1.0125e15}),
    "torchtune": (TORCHTUNE, {GPU: 1523.4}),
    "PaddleNLP": (PADDLE, {GPU: 889.0448, FLOPS: 2.77e12, SAMPLES: 0.8682}),
    "MaxText": (MAXTEXT, {GPU: 3456.7, FLOPS: 1.502e14}),
    "transformers": (HUGGING_FACE, {WHOLE: 25600.0, SAMPLES: 12.5}),
}


def exported(*lines: str):
    """Return the throughput that an agent exports of a pod that prints these lines."""
    log = StepLog()
    log.feed("".join(f"{line}\n" for line in lines).encode(), NOW, None)
    samples = step_samples(PodIdentity("team", "train-0", "uid"), log.facts)
    return {one.metric: one.value for one in samples if one.metric in RATES}


@pytest.mark.parametrize("name", LINES)
def test_tokens_and_operations_per_second_are_those_that_are_printed(name):
    line, expected = LINES[name]
    assert exported(line) == {metric: pytest.approx(value) for metric, value in expected.items()}


@pytest.mark.parametrize("rate", ["0", "nan", "inf", "-5", "many", ",123"])
def test_a_rate_that_cannot_be_is_none(rate):
    assert exported(TITAN.replace("3,456", rate)) == {FLOPS: 1.0125e15}
    assert exported(TORCHTUNE.replace("1523.4", rate)) == {}


def test_the_newest_line_counts_and_one_without_a_rate_changes_nothing():
    later = TITAN.replace("3,456", "4,000").replace("step: 10", "step: 20")
    without = later.partition("  tps:")[0].replace("step: 20", "step: 30")
    assert exported(TITAN, later, without)[GPU] == 4000.0


STEP = "Epoch: 0, Batch: 10, Loss: 0.51"
OWN = {
    f"{STEP}, 512.5 samples/s": {SAMPLES: 512.5},
    f"{STEP}, 1,024 images/sec": {SAMPLES: 1024.0},
    f"{STEP} | throughput: 12 samples/second": {SAMPLES: 12.0},
    f"{STEP}, samples/s: 12.5": {SAMPLES: 12.5},
    f"{STEP} img/s=350": {SAMPLES: 350.0},
    f"{STEP}, time 0.5 samples/s: 12.3": {SAMPLES: 12.3},
    f"{STEP}, images_per_second: 7e2": {SAMPLES: 700.0},
    "step   10/19560 | loss 7.1 (+nanz)| norm 15.4 (+nanz)| lr 8.57e-07 | 250.00 ms | 48.1% bf16"
    " MFU | 182,044 tok/s": {WHOLE: 182044.0},
    "step    10 | loss: 6.12 | lr 1.0e-04 | norm: 1.2 | dt: 250.00ms | tok/sec: 180000.25": {
        WHOLE: 180000.25
    },
    f"{STEP}, tokens/s/gpu: 3,456, tokens per second: 27648": {GPU: 3456.0, WHOLE: 27648.0},
    f"{STEP}, 100 tok/s/GPU": {GPU: 100.0},
    f"{STEP}, 9 samples/s/gpu": {},
    f"{STEP}, 9 samples per step": {},
    f"{STEP}, subsamples/s: 9": {},
    f"{STEP}, 1,2345 samples/s": {},
    f"{STEP}, samples/s: nan": {},
}


@pytest.mark.parametrize("line", OWN, ids=range(len(OWN)))
def test_a_script_of_ones_own_prints_rates_with_their_units(line):
    assert exported(line) == OWN[line]


@pytest.mark.parametrize(
    "time", [", dt: 250.00ms", " | 250.00 ms |", ", data time: 5ms, step time: 250ms"]
)
def test_the_milliseconds_of_a_step_are_read_from_scripts_of_ones_own(time):
    log = StepLog()
    log.feed(f"{STEP}{time}\n".encode(), NOW, None)
    assert log.facts.frameworks["pytorch"].step_seconds == 0.25


@pytest.mark.parametrize("part", ["1,", "samples/s ", "tok/s: ", "9 samples", " ms", "12345"])
def test_what_only_begins_like_a_rate_is_none(part):
    assert exported(STEP + " " + (part * 2000)[:7000]) == {}
