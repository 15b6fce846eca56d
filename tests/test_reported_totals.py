"""What the training collector makes of signals and of checkpoints that ranks share."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankscope_probe
from collected_page import CREATED_NS, Clock, Page, collector
from rankscope_agent.contract.metrics import job_work, training
from rankscope_agent.contract.metrics import reported as metrics
from rankscope_agent.sources.training.reported import Reading, Signal, parse_signals
from rankscope_agent.sources.training.reported_totals import SignalTotals
from ring_writer import NS, RingWriter, SignalWriter, SpanWriter

LOSS, LOSSES, NOT_FINITE, LEVEL = 1, 2, 3, 4
LATER = {"created_unix_ns": CREATED_NS + 60 * NS, "pid": 4343}


def losses(count: int, level: float, **more: float) -> dict[int, float]:
    return {LOSS: level, LOSSES: count, LEVEL: level, **{int(k): v for k, v in more.items()}}


def test_what_a_rank_says_is_on_the_page_and_what_it_does_not_say_is_absent(tmp_path: Path) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    signals.write({5: 0.001, 8: 1e6, 11: 4e9, 12: 1e10, 13: 3})
    page = Page(collector(tmp_path))
    assert page.rank(metrics.LEARNING_RATE) == 0.001
    assert page.rank(metrics.PARAMETERS) == 1e6
    assert (page.rank(metrics.STORE_FREE), page.rank(metrics.STORE_SIZE)) == (4e9, 1e10)
    assert page.rank(metrics.CHECKPOINTS_KEPT) == 3
    assert page.rank(metrics.DEAD_WORKERS) == page.rank(metrics.CUDA_OUT_OF_MEMORY) == 0
    for absent in (metrics.LOSS, metrics.LOSSES, metrics.NONFINITE_LOSSES, metrics.TOKENS):
        assert page.rank(absent) is None
    ring.end()


def test_a_loss_that_is_not_finite_is_counted_and_is_no_value(tmp_path: Path) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    signals.write(losses(30, 2.5))
    page = Page(read)
    assert page.rank(metrics.LOSS) == page.rank(metrics.LOSS_LEVEL) == 2.5
    assert page.rank(metrics.NONFINITE_LOSSES) == 0
    signals.write({LOSS: math.nan, LOSSES: 31, NOT_FINITE: 1, LEVEL: 2.5})
    page = Page(read)
    assert page.rank(metrics.LOSS) is None
    assert page.rank(metrics.LOSS_LEVEL) == 2.5
    assert (page.rank(metrics.LOSSES), page.rank(metrics.NONFINITE_LOSSES)) == (31, 1)
    ring.end()


def test_counts_go_on_over_restarts_and_the_loss_before_one_is_kept(tmp_path: Path) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    signals.write(losses(100, 2.0) | {9: 1, 7: 5000})
    Page(read)
    ring.end()
    signals = SignalWriter(tmp_path, "4343-9.sig", **LATER)
    ring = RingWriter(tmp_path, "4343-9.ring", **LATER)
    ring.step(start_unix_ns=CREATED_NS + 61 * NS)
    signals.write(losses(5, 3.0) | {9: 2, 7: 100})
    page = Page(read)
    assert (page.rank(metrics.LOSSES), page.rank(metrics.TOKENS)) == (105, 5100)
    assert page.rank(metrics.DEAD_WORKERS) == 3
    assert page.rank(metrics.LOSS_BEFORE_RESTART) is None  # five losses make no level
    signals.write(losses(40, 3.0) | {9: 2, 7: 100})
    page = Page(read)
    assert page.rank(metrics.LOSS_BEFORE_RESTART) == 2.0
    assert page.rank(metrics.LOSS_LEVEL) == 3.0
    ring.end()


def test_processes_beyond_those_kept_apart_count_on(tmp_path: Path) -> None:
    read = collector(tmp_path)
    for number in range(12):
        of = {"created_unix_ns": CREATED_NS + number * NS, "pid": 5000 + number}
        signals = SignalWriter(tmp_path, f"{of['pid']}-1.sig", **of)
        ring = RingWriter(tmp_path, f"{of['pid']}-1.ring", **of)
        ring.step(start_unix_ns=of["created_unix_ns"])
        signals.write({9: 2})
        Page(read)
        ring.end()
    assert Page(read).rank(metrics.DEAD_WORKERS) == 24


@pytest.mark.parametrize("content", [b"", b"RKSCSIGN" + bytes(4000), b"\xff" * 2112])
def test_a_file_that_holds_no_signals_is_refused_and_costs_nothing_else(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "4242-99.sig").write_bytes(content)
    ring = RingWriter(tmp_path)
    ring.step(3)
    page = Page(collector(tmp_path, Clock()))
    assert page.rank(training.STEPS) == 3
    assert page.rank(metrics.DEAD_WORKERS) is None
    assert len(page.labels(training.RINGS_REJECTED)) == 1
    ring.end()


@given(
    seq=st.integers(0, 2**64 - 1),
    unix_ns=st.integers(-(2**63), 2**63 - 1),
    value=st.floats(width=64),
    step=st.integers(-(2**63), 2**63 - 1),
    kind=st.integers(0, 40),
    shift=st.sampled_from([0, 1]),
)
def test_no_table_raises_and_no_value_is_beyond_what_can_be(
    seq: int, unix_ns: int, value: float, step: int, kind: int, shift: int
) -> None:
    table = bytearray(64 * 32)
    check = (seq + kind + shift) & 0xFFFFFFFF
    place = 64 * (kind - 1 if 1 <= kind <= 32 else 0)
    struct.pack_into("<QqdqII24x", table, place, seq, unix_ns, value, step, kind, check)
    found = parse_signals(bytes(table) + b"rest")
    assert len(found) <= 1
    for signal, reading in found.items():
        assert signal is Signal.LOSS or math.isfinite(reading.value)
        assert shift == 0


def save(
    spans: SpanWriter, seq: int, second: float, *, target: int, step: int, flags: int = 8
) -> None:
    start = CREATED_NS + round(second * NS)
    spans.write(
        seq, start_ns=start, duration_ns=NS, outcome=1, flags=flags, target=target, step=step
    )


def test_ranks_that_write_one_file_are_counted_and_those_with_files_of_their_own_are_not(
    tmp_path: Path,
) -> None:
    writers = []
    for rank in (0, 1):
        of = {"pid": 4242 + rank}
        spans = SpanWriter(tmp_path, f"{of['pid']}-9.span", **of)
        ring = RingWriter(tmp_path, f"{of['pid']}-9.ring", rank=rank, **of)
        ring.step()
        writers.append((spans, ring))
    read = collector(tmp_path)
    assert Page(read).value(metrics.CHECKPOINT_SHARED, "team/job") is None
    (first, _), (second, _) = writers
    save(first, 1, 1.0, target=11, step=10)
    save(second, 1, 1.5, target=22, step=10)
    save(second, 2, 1.2, target=11, step=10, flags=0)  # a directory that ranks share, as DCP's
    assert Page(read).value(metrics.CHECKPOINT_SHARED, "team/job") == 0
    save(first, 2, 10.0, target=11, step=20)
    save(second, 3, 10.5, target=11, step=21)  # at the same time
    assert Page(read).value(metrics.CHECKPOINT_SHARED, "team/job") == 1
    save(first, 3, 20.0, target=11, step=30)
    save(second, 4, 25.0, target=11, step=30)  # one after the other
    save(second, 5, 40.0, target=11, step=50)  # of another step, alone
    for _ in range(2):
        page = Page(read)
        assert page.value(metrics.CHECKPOINT_SHARED, "team/job") == 2
        assert event(page, "checkpoint_path_shared", rank=1) == CREATED_NS / NS + 26
        assert event(page, "checkpoint_path_shared") == CREATED_NS / NS + 21
    for _, ring in writers:
        ring.end()


def test_loads_emergencies_and_the_step_of_the_last_good_one(tmp_path: Path) -> None:
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    assert Page(read).rank(metrics.CHECKPOINT_STEP) is None
    spans.write(1, 2, start_ns=CREATED_NS, duration_ns=NS, outcome=1)
    spans.write(2, 2, start_ns=CREATED_NS, duration_ns=NS, outcome=2)
    save(spans, 3, 5.0, target=1, step=40)
    save(spans, 4, 9.0, target=1, step=60, flags=8 | 2)
    spans.write(5, start_ns=CREATED_NS + 11 * NS, duration_ns=NS, outcome=2, flags=8 | 2, step=61)
    page = Page(read)
    loads = (page.rank(metrics.CHECKPOINT_LOADS), page.rank(metrics.CHECKPOINT_LOAD_FAILURES))
    assert loads == (2, 1)
    assert page.rank(metrics.CHECKPOINT_STEP) == 60
    outcomes = ("done", "failed", "interrupted")
    emergencies = [page.value(metrics.CHECKPOINT_EMERGENCY, "team/job", "0", o) for o in outcomes]
    assert emergencies == [1, 1, None]
    ring.end()
    ring = RingWriter(tmp_path, "4343-9.ring", **LATER)
    ring.step(start_unix_ns=CREATED_NS + 61 * NS)
    assert Page(read).rank(metrics.CHECKPOINT_STEP) == 0  # of the process before
    ring.end()


def test_what_ranks_say_of_their_model_is_put_together_of_the_node(tmp_path: Path) -> None:
    writers = []
    for rank in (0, 1):
        of = {"pid": 4242 + rank}
        signals = SignalWriter(tmp_path, f"{of['pid']}-9.sig", **of)
        ring = RingWriter(tmp_path, f"{of['pid']}-9.ring", rank=rank, **of)
        ring.step()
        writers.append((signals, ring))
    read = collector(tmp_path)
    (first, ring), (second, other) = writers
    first.write({7: 3000, 24: 1.25, 14: 2.5e9, 15: 1.5e10, 17: 5})
    page = Page(read)
    assert page.value(job_work.JOB_TOKENS, "team/job") == 3000
    assert page.value(job_work.JOB_PARAMETERS, "team/job") is None  # the other says nothing
    second.write({7: 2000, 24: 1.5, 14: 2.5e9, 15: 1.5e10, 16: 7e12, 17: 5})
    page = Page(read)
    assert page.value(job_work.JOB_TOKENS, "team/job") == 5000
    assert page.value(job_work.JOB_EPOCHS, "team/job") == 1.5
    assert page.value(job_work.JOB_PARAMETERS, "team/job") == 5e9
    assert page.value(job_work.JOB_MODEL_FLOPS, "team/job", "token") == 1.5e10
    assert page.value(job_work.JOB_MODEL_FLOPS, "team/job", "sample") == 7e12
    assert page.labels(job_work.JOB_NUMBERS_INFO) == [("team/job", "fp8")]
    second.write({7: 2000, 17: 99})
    first.write({7: 3000, 17: 99})
    page = Page(read)
    assert page.labels(job_work.JOB_NUMBERS_INFO) == page.labels(job_work.JOB_PARAMETERS) == []
    for writer in (ring, other):
        writer.end()


def event(page: Page, kind: str, rank: int = 0) -> object:
    return page.value(metrics.TRAINING_EVENT, "team/job", str(rank), kind)


def where_not_finite(page: Page) -> tuple[object, ...]:
    shards = (page.value(metrics.NONFINITE_LOSS_SHARD, "team/job", "0", n) for n in "1234")
    return page.rank(metrics.NONFINITE_LOSS_STEP), page.rank(metrics.NONFINITE_LOSS_SHARDS), *shards


def test_where_a_loss_became_infinite_is_kept_beyond_the_process_that_ended_of_it(
    tmp_path: Path,
) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    signals.write(losses(30, 2.0))
    assert where_not_finite(Page(read)) == (None,) * 6
    signals.write({**losses(31, 2.0), NOT_FINITE: 1, 18: 30, 19: 2, 20: 7e8, 21: 2**32 - 1})
    assert where_not_finite(Page(read)) == (30, 2, 7e8, 2**32 - 1, None, None)
    ring.end()
    signals = SignalWriter(tmp_path, "4343-9.sig", **LATER)
    ring = RingWriter(tmp_path, "4343-9.ring", **LATER)
    ring.step(start_unix_ns=CREATED_NS + 61 * NS)
    signals.write(losses(5, 2.0), unix_ns=CREATED_NS + 62 * NS)
    assert where_not_finite(Page(read)) == (30, 2, 7e8, 2**32 - 1, None, None)
    signals.write({**losses(6, 2.0), NOT_FINITE: 1, 18: 5, 19: 0}, unix_ns=CREATED_NS + 63 * NS)
    assert where_not_finite(Page(read)) == (5, 0, None, None, None, None)
    ring.end()


def ratio(page: Page, quantity: str) -> object:
    return page.value(metrics.RESTART_RATIO, "team/job", "0", quantity)


def test_what_befell_a_rank_has_the_time_of_the_newest_that_was_counted(tmp_path: Path) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    signals.write(losses(30, 2.0) | {9: 1})
    page = Page(read)
    assert event(page, "loader_worker_died") == CREATED_NS / NS
    assert event(page, "loss_not_finite") is event(page, "cuda_out_of_memory") is None
    signals.write(losses(31, 2.0) | {9: 1, NOT_FINITE: 1}, unix_ns=CREATED_NS + 5 * NS)
    page = Page(read)
    assert event(page, "loss_not_finite") == CREATED_NS / NS + 5
    signals.write(losses(32, 2.0) | {9: 1, NOT_FINITE: 1, 10: 2}, unix_ns=CREATED_NS + 9 * NS)
    page = Page(read)
    assert event(page, "loss_not_finite") == CREATED_NS / NS + 5  # it was none of the newest
    assert event(page, "loader_worker_died") == CREATED_NS / NS
    assert event(page, "cuda_out_of_memory") == CREATED_NS / NS + 9
    ring.end()


def test_the_lowest_level_of_a_loss_is_of_the_newest_process(tmp_path: Path) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    signals.write(losses(19, 1.0))
    assert Page(read).rank(metrics.LOSS_LOWEST) is None
    for count, level, lowest in ((20, 2.0, 2.0), (40, 1.5, 1.5), (60, 3.0, 1.5)):
        signals.write(losses(count, level))
        assert Page(read).rank(metrics.LOSS_LOWEST) == lowest
    ring.end()
    signals = SignalWriter(tmp_path, "4343-9.sig", **LATER)
    ring = RingWriter(tmp_path, "4343-9.ring", **LATER)
    ring.step(start_unix_ns=CREATED_NS + 61 * NS)
    signals.write(losses(30, 2.5))
    assert Page(read).rank(metrics.LOSS_LOWEST) == 2.5
    ring.end()


def test_what_a_restart_changed_is_told_as_ratios(tmp_path: Path) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path, world_size=4)
    for samples in (*[32] * 15, 7, 96):
        ring.step(samples=samples)
    read = collector(tmp_path)
    signals.write({5: 0.1})
    page = Page(read)
    signals.write({5: 0.04})
    page = Page(read)
    assert page.labels(metrics.RESTART_RATIO) == []
    assert event(page, "restarted") is None
    ring.end()
    signals = SignalWriter(tmp_path, "4343-9.sig", **LATER)
    ring = RingWriter(tmp_path, "4343-9.ring", world_size=3, **LATER)
    signals.write({5: 0.02})
    for step in range(15):
        ring.step(start_unix_ns=CREATED_NS + (61 + step) * NS, samples=64)
    assert ratio(Page(read), "batch_samples") is None
    ring.step(start_unix_ns=CREATED_NS + 76 * NS, samples=64)
    page = Page(read)
    assert event(page, "restarted") == CREATED_NS / NS + 60
    assert ratio(page, "learning_rate") == 0.5
    assert ratio(page, "world_size") == 0.75
    assert ratio(page, "batch_samples") == 2.0
    signals.write({5: 0.001})  # the schedule goes on
    assert ratio(Page(read), "learning_rate") == 0.5
    for step in range(20):  # then they vary
        ring.step(start_unix_ns=CREATED_NS + (77 + step) * NS, samples=step)
    assert ratio(Page(read), "batch_samples") == 2.0
    ring.end()


def test_another_ring_of_the_same_process_is_no_restart_and_repeats_no_span(tmp_path: Path) -> None:
    """The probe makes one when its rank has joined the others, and another with the first step."""
    spans = SpanWriter(tmp_path)
    ring = RingWriter(tmp_path, world_size=4)
    spans.write(1, 2, start_ns=CREATED_NS - 3 * NS, duration_ns=NS, outcome=1)
    read = collector(tmp_path)
    assert Page(read).rank(metrics.CHECKPOINT_LOADS) == 1
    ring.end()
    ring.path.unlink()
    later = {"created_unix_ns": CREATED_NS + 2 * NS}
    spans = SpanWriter(tmp_path, "4242-100.span", **later)
    ring = RingWriter(tmp_path, "4242-100.ring", world_size=4, **later)
    ring.step(start_unix_ns=CREATED_NS + 2 * NS)
    spans.write(1, 2, start_ns=CREATED_NS - 3 * NS, duration_ns=NS, outcome=1)
    spans.write(2, 2, start_ns=CREATED_NS + 3 * NS, duration_ns=NS, outcome=1)
    page = Page(read)
    assert page.rank(metrics.CHECKPOINT_LOADS) == 2
    assert event(page, "restarted") is None
    assert page.labels(metrics.RESTART_RATIO) == []
    ring.end()


def test_a_process_that_says_no_learning_rate_is_not_compared_by_that_of_the_one_before(
    tmp_path: Path,
) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    signals.write({5: 0.1})
    Page(read)
    ring.end()
    SignalWriter(tmp_path, "4343-9.sig", **LATER)
    ring = RingWriter(tmp_path, "4343-9.ring", **LATER)
    ring.step(start_unix_ns=CREATED_NS + 61 * NS)
    assert ratio(Page(read), "learning_rate") is None
    ring.end()


def test_types_of_numbers_are_those_that_the_probe_was_given(tmp_path: Path) -> None:
    signals, ring = SignalWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    given = {"fp32": "float32", "tf32": "tf32", "fp16": "half", "bf16": "bfloat16", "fp4": "fp4"}
    for dtype, name in given.items():
        signals.write({17: rankscope_probe._TYPES[name]})
        assert Page(read).labels(job_work.JOB_NUMBERS_INFO) == [("team/job", dtype)]
    ring.end()


@pytest.mark.parametrize(("tokens", "known"), [(1e18, True), (1.001e18, False), (-1.0, False)])
def test_more_tokens_than_there_are_are_no_count(tokens: float, known: bool) -> None:
    table = bytearray(64 * 32)
    words = (1, CREATED_NS, tokens, 7, Signal.TOKENS, 1 + Signal.TOKENS)
    struct.pack_into("<QqdqII24x", table, 64 * (Signal.TOKENS - 1), *words)
    assert (Signal.TOKENS in parse_signals(bytes(table))) is known


def test_of_older_processes_a_bounded_number_is_remembered_and_none_counts_twice() -> None:
    totals = SignalTotals()
    for _ in range(2):
        for created_unix_ns in range(1, 101):
            totals.note({Signal.TOKENS: Reading(5.0, 1, 1)}, created_unix_ns)
    assert totals.count(Signal.TOKENS) == 500
    assert len(totals.folded_unix_ns) == 64
