"""How long checkpoints take by Megatron's timers, as it printed them over the years."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import job_logs as metrics
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_series import step_samples
from rankscope_agent.sources.pods.log_directories import PodIdentity

NOW = 1_795_000_000.0
DOTS = "save-checkpoint ................................"
TIMERS = (
    (f"    {DOTS}: (812.31, 1815.02)", 1.81502),
    (f"    {DOTS}: 1815.02", 1.81502),
    (f"[rank7]:     {DOTS}: (812.31, 1815.02)", 1.81502),
    ("time (ms) | save-checkpoint: 1234.50", 1.2345),
    ("time (ms) | forward-compute: 12.00 | save-checkpoint: 1234.50 | optimizer: 3.10", 1.2345),
)
OTHERS = (
    f"    load-{DOTS}: (812.31, 1815.02)",
    "saving with save-checkpoint 3 times",
    f"    {DOTS}: (812.31, a)",
    "INFO: see save-checkpoint: 1234.50 in the docs",
)
LINE = (
    " iteration 10/ 99 | consumed samples: 1 | elapsed time per iteration (ms): 120.0 |"
    " learning rate: 1.0E-04 | global batch size: 4 | lm loss: 2.5E+00 |"
)


def fed(*lines: str) -> StepLog:
    log = StepLog()
    log.feed("".join(f"{line}\n" for line in lines).encode(), NOW, None)
    return log


@pytest.mark.parametrize(("line", "seconds"), TIMERS, ids=range(len(TIMERS)))
def test_the_timer_of_a_save_is_read(line: str, seconds: float) -> None:
    known = fed(line).facts.frameworks["megatron"]
    assert known.checkpoint_seconds == pytest.approx(seconds)
    assert (known.checkpoints, known.lines) == (1, 0)


@pytest.mark.parametrize("line", OTHERS, ids=range(len(OTHERS)))
def test_other_lines_with_its_name_are_none(line: str) -> None:
    log = fed(line)
    assert not log.facts.frameworks
    assert log.facts.refused == 0


def test_saves_are_series_beside_those_of_steps() -> None:
    log = fed(LINE, TIMERS[0][0], LINE.replace("10/", "11/"), TIMERS[3][0])
    samples = {s.metric: s.value for s in step_samples(PodIdentity("a", "b", "c"), log.facts)}
    assert samples[metrics.JOB_LOG_CHECKPOINTS] == 2
    assert samples[metrics.JOB_LOG_CHECKPOINT_SECONDS] == pytest.approx(1.2345)
    assert (samples[metrics.JOB_LOG_STEP], samples[metrics.JOB_LOG_STEP_LINES]) == (11, 2)


def test_a_log_without_saves_has_no_series_of_them() -> None:
    samples = {s.metric for s in step_samples(PodIdentity("a", "b", "c"), fed(LINE).facts)}
    assert metrics.JOB_LOG_STEP in samples
    assert not samples & {metrics.JOB_LOG_CHECKPOINTS, metrics.JOB_LOG_CHECKPOINT_SECONDS}
