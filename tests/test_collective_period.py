"""The time of a step by the collectives that NCCL prints."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from rankscope_agent.sources.nccl_log.step_lines.collectives import repeat
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_lines.values import NCCL

MAX_SHAPES = 4096
WINDOW = 8192

NOW = 1_795_000_000.0
DDP = [("AllReduce", 1_000_000), ("AllReduce", 2_500_000), ("AllReduce", 300)]
LAYERS = 80
FSDP = [
    *(("AllGather", 4096) for _ in range(LAYERS)),
    *(step for _ in range(LAYERS) for step in (("AllGather", 4096), ("ReduceScatter", 4096))),
    ("AllReduce", 1),
]


def stamped(moment: float) -> str:
    time = datetime.fromtimestamp(moment, tz=timezone.utc)
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F "


def coll(op: str, count: int, number: int, pid: int = 4000, comm: str = "0x7f00") -> str:
    return (
        f"gpu-00:{pid}:{pid + 70} [0] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f1 recvbuff"
        f" 0x7f2 count {count} datatype 7 op 0 root 0 comm {comm} [nranks=16] stream 0x55\n"
    )


def steps(unit: list[tuple[str, int]], count: int, seconds: float, *, pid: int = 4000) -> str:
    """Return the collectives of steps that take equally long."""
    text = []
    for step in range(count):
        for place, (op, size) in enumerate(unit):
            at = NOW + (step + place / len(unit)) * seconds
            text.append(stamped(at) + coll(op, size, step * len(unit) + place, pid))
    return "".join(text)


def step_seconds(text: str) -> float | None:
    log = StepLog()
    log.feed(text.encode(), NOW, None)
    log.sum_up(NOW)
    return log.facts.frameworks[NCCL].step_seconds


@pytest.mark.parametrize(("unit", "count"), [(DDP, 400), (FSDP, 12)])
def test_a_step_lasts_as_long_as_the_order_of_collectives(unit, count):
    assert step_seconds(steps(unit, count, 0.8)) == pytest.approx(0.8, rel=0.02)


def test_equal_layers_are_no_steps():
    # The first forward pass over 80 layers repeats itself 80 times.
    forward = steps([("AllGather", 4096)], LAYERS, 0.01)
    assert step_seconds(forward) is None
    assert step_seconds(steps(FSDP, 3, 0.8)) is None
    # Nor are the first steps of a model with four times as many.
    deep = [*FSDP[:-1], *FSDP[:-1], *FSDP[:-1], *FSDP]
    assert step_seconds(steps(deep, 3, 0.8)) is None


def test_evaluations_in_between_do_not_hide_the_period():
    text = ""
    for part, count in enumerate((200, 310, 170)):
        text += steps(DDP, count, 0.5)
        text += "".join(stamped(NOW + part) + coll("Broadcast", 7, 1) for _ in range(5))
    assert step_seconds(text) == pytest.approx(0.5, rel=0.05)


def test_one_process_is_followed_and_its_successor_after_it():
    both = "".join(
        a + b
        for a, b in zip(
            steps(DDP, 400, 0.5).splitlines(keepends=True),
            steps(DDP, 400, 0.5, pid=5000).splitlines(keepends=True),
            strict=True,
        )
    )
    assert step_seconds(both) == pytest.approx(0.5, rel=0.02)
    later = steps(DDP, 2000, 0.25, pid=6000)
    assert step_seconds(both + later) == pytest.approx(0.25, rel=0.02)


def test_without_time_stamps_the_moments_of_reading_tell_the_period():
    log = StepLog()
    for second in range(120):
        text = "".join(coll(op, size, second) for op, size in DDP * 5)
        log.feed(text.encode(), NOW + second, NOW + second)
        log.sum_up(NOW + second)
    assert log.facts.frameworks[NCCL].step_seconds == pytest.approx(0.2, rel=0.05)


def test_lines_that_were_there_before_tell_no_period_without_time_stamps():
    log = StepLog()
    text = "".join(coll(op, size, n) for n in range(1000) for op, size in DDP)
    log.feed(text.encode(), NOW, None)
    log.sum_up(NOW)
    assert log.facts.frameworks[NCCL].step_seconds is None


def test_a_repetition_within_another_leaves_the_step_unknown():
    # Layers of tensor parallelism in steps, or steps between evaluations: the log is the same.
    assert repeat(([1] * 128 + [2, 3, 4]) * 40) is None


def test_no_period_is_seen_in_what_has_none():
    assert repeat([n * n % 251 for n in range(60)] + list(range(300, 900))) is None
    assert repeat([]) is None
    assert repeat([1, 2, 3] * 4) == 3
    assert repeat([1, 2, 3] * 3) is None


def test_lines_that_are_none_of_nccls_are_left_alone():
    log = StepLog()
    log.feed(b"the counter is named: opCount 12 and counts\n", NOW, None)
    log.sum_up(NOW)
    assert not log.facts.frameworks


def test_memory_is_bounded():
    log = StepLog()
    text = "".join(coll("AllReduce", n, n) for n in range(20_000))
    log.feed(text.encode(), NOW, None)
    period = log._collectives
    assert len(period._order) <= WINDOW
    assert len(period._shapes) <= MAX_SHAPES


@pytest.mark.parametrize(("size", "known"), [(2048, True), (2049, False)])
def test_a_step_of_2048_collectives_is_known_when_it_was_done_four_times(size, known):
    unit = [("AllReduce", number) for number in range(size)]
    found = step_seconds(steps(unit, 4, 2.0))
    assert found == (pytest.approx(2.0, rel=0.02) if known else None)
