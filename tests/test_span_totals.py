"""What the training collector makes of spans: checkpoints counted once, open ones shown."""

from __future__ import annotations

import os

import pytest

from collected_page import CREATED, CREATED_NS, Clock, Page, collector
from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.training import spans as source
from ring_writer import NS, RingWriter, SpanWriter

CAPACITY = 1024


def checkpoints(page: Page) -> tuple[object, ...]:
    """Return writes, failures, seconds, when the last good one ended and how long it took."""
    return tuple(
        page.rank(metric)
        for metric in (
            metrics.CHECKPOINT_WRITES,
            metrics.CHECKPOINT_WRITE_FAILURES,
            metrics.CHECKPOINT_WRITE_SECONDS,
            metrics.CHECKPOINT_LAST_SUCCESS,
            metrics.CHECKPOINT_LAST_WRITE,
        )
    )


def test_every_checkpoint_counts_once_when_it_has_ended(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    assert checkpoints(Page(read)) == (0, 0, 0.0, None, None)
    spans.write(1, start_ns=CREATED_NS + NS)
    page = Page(read)
    assert checkpoints(page)[:2] == (0, 0)
    began = ("team/job", "0", "checkpoint_save")
    assert page.value(metrics.SPAN_BEGAN, *began) == CREATED + 1
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=2 * NS, outcome=1)
    spans.write(2, start_ns=CREATED_NS + 4 * NS, duration_ns=NS, outcome=2)
    for _ in range(2):
        page = Page(read)
        assert checkpoints(page) == (2, 1, 2.0, CREATED + 3, 2.0)
    assert page.labels(metrics.SPAN_BEGAN) == []
    ring.end()


@pytest.mark.parametrize("behind", [0.0, 60.0], ids=["own clock", "file server's clock behind"])
def test_one_that_ends_in_the_tick_in_which_it_was_seen_to_begin_has_ended(tmp_path, behind):
    clock, spans, ring = Clock(), SpanWriter(tmp_path), RingWriter(tmp_path)
    tick = round((clock.now - behind) * NS)
    read = collector(tmp_path, clock)
    ring.step()
    spans.write(1, start_ns=CREATED_NS + NS)
    os.utime(spans.path, ns=(tick, tick))
    assert Page(read).labels(metrics.SPAN_BEGAN)
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=2 * NS, outcome=1)
    os.utime(spans.path, ns=(tick, tick))
    clock.now += 1
    page = Page(read)
    assert checkpoints(page) == (1, 0, 2.0, CREATED + 3, 2.0)
    assert page.labels(metrics.SPAN_BEGAN) == []
    ring.end()


def test_a_file_of_spans_that_has_not_changed_for_long_is_not_read_again(tmp_path, monkeypatch):
    clock, spans, ring = Clock(), SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    os.utime(spans.path, (clock.now, clock.now))
    read, reads = collector(tmp_path, clock), []

    def counted(descriptor):
        reads.append(clock.now)
        return read_spans(descriptor)

    read_spans = source.read_spans
    monkeypatch.setattr(source, "read_spans", counted)
    began = clock.now
    for _ in range(6):
        Page(read)
        clock.now += 1
    assert [at - began for at in reads] == [0, 1, 2, 3]
    ring.end()


def test_one_that_ends_before_an_older_one_does_is_counted_and_so_is_the_older_one(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    spans.write(1, start_ns=CREATED_NS + NS, flags=1)
    spans.write(2, start_ns=CREATED_NS + 2 * NS, duration_ns=NS, outcome=1)
    assert checkpoints(Page(read))[0] == 1
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=5 * NS, outcome=1, flags=1)
    assert checkpoints(Page(read)) == (2, 0, 6.0, CREATED + 6, 5.0)
    ring.end()


def test_what_is_no_file_that_was_written_is_no_checkpoint(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    in_memory = 4
    spans.write(1, start_ns=CREATED_NS, duration_ns=NS, outcome=1, flags=in_memory)
    for seq, kind in enumerate((2, 3, 4, 5), 2):
        spans.write(seq, kind, start_ns=CREATED_NS, duration_ns=NS, outcome=2)
    assert checkpoints(Page(collector(tmp_path))) == (0, 0, 0.0, None, None)
    ring.end()


def test_one_that_its_process_left_open_has_failed_and_is_over(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    spans.write(1, start_ns=CREATED_NS)
    assert checkpoints(Page(read))[:2] == (0, 0)
    ring.end()
    page = Page(read)
    assert checkpoints(page)[:2] == (1, 1)
    assert page.labels(metrics.SPAN_BEGAN) == []
    assert checkpoints(Page(read))[:2] == (1, 1)


def test_a_restarted_process_goes_on_with_the_counts(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    spans.write(1, start_ns=CREATED_NS, duration_ns=NS, outcome=1)
    read = collector(tmp_path)
    Page(read)
    ring.end()
    later = {"created_unix_ns": CREATED_NS + 60 * NS, "pid": 4343}
    spans = SpanWriter(tmp_path, "4343-9.span", **later)
    ring = RingWriter(tmp_path, "4343-9.ring", **later)
    ring.step(start_unix_ns=CREATED_NS + 61 * NS)
    spans.write(1, start_ns=CREATED_NS + 62 * NS, duration_ns=3 * NS, outcome=1)
    assert checkpoints(Page(read)) == (2, 0, 4.0, CREATED + 65, 3.0)
    ring.end()


def test_more_spans_than_the_file_holds_count_once_each(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    for seq in range(1, CAPACITY + 11):
        spans.write(seq, start_ns=CREATED_NS + seq, duration_ns=1, outcome=1)
        if seq % 400 == 0:
            Page(read)
    assert checkpoints(Page(read))[0] == CAPACITY + 10
    ring.end()


def test_a_probe_that_marks_nothing_has_no_series_of_checkpoints(tmp_path):
    ring = RingWriter(tmp_path)
    ring.step()
    assert checkpoints(Page(collector(tmp_path))) == (None,) * 5
    ring.end()


@pytest.mark.parametrize("content", [b"", b"RKSCSPAN" + bytes(4000), b"\xff" * 65600])
def test_a_file_that_is_no_spans_is_refused_and_costs_nothing_else(tmp_path, content):
    (tmp_path / "4242-99.span").write_bytes(content)
    ring = RingWriter(tmp_path)
    ring.step(3)
    page = Page(collector(tmp_path, Clock()))
    assert page.rank(metrics.STEPS) == 3
    assert checkpoints(page) == (None,) * 5
    assert len(page.labels(metrics.RINGS_REJECTED)) == 1
    ring.end()


def test_what_saving_held_up_is_counted_and_what_failed_has_its_time(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=2 * NS, outcome=1)
    spans.write(2, 3, start_ns=CREATED_NS + 4 * NS, duration_ns=NS // 2, outcome=1)  # staged
    spans.write(3, 2, start_ns=CREATED_NS + 5 * NS, duration_ns=NS, outcome=2)
    spans.write(4, 4, start_ns=CREATED_NS + 7 * NS, duration_ns=NS, outcome=1)
    page = Page(read)
    assert page.rank(metrics.CHECKPOINT_BLOCKED) == 2.5
    event = reported.TRAINING_EVENT
    assert page.value(event, "team/job", "0", "checkpoint_load_failed") == CREATED + 6
    assert page.value(event, "team/job", "0", "checkpoint_write_failed") is None
    spans.write(5, start_ns=CREATED_NS + 9 * NS, duration_ns=NS, outcome=2)
    spans.write(6, start_ns=CREATED_NS + 11 * NS)
    page = Page(read)
    assert page.value(event, "team/job", "0", "checkpoint_write_failed") == CREATED + 10
    ring.end()
    page = Page(read)  # it was cut off by the end of its process
    assert page.value(event, "team/job", "0", "checkpoint_write_failed") == CREATED + 11


def test_what_evaluations_and_compiling_held_up_is_counted_apart_and_from_nothing_on(tmp_path):
    spans, ring = SpanWriter(tmp_path), RingWriter(tmp_path)
    ring.step()
    read = collector(tmp_path)
    labels = "team/job", "0"
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=2 * NS, outcome=1)  # a checkpoint
    page = Page(read)
    assert page.value(metrics.SPAN_BLOCKED, *labels, "evaluation") == 0
    assert page.value(metrics.SPAN_BLOCKED, *labels, "compile") == 0
    spans.write(2, 4, start_ns=CREATED_NS + 4 * NS, duration_ns=3 * NS, outcome=1)
    spans.write(3, 4, start_ns=CREATED_NS + 8 * NS, duration_ns=NS, outcome=1)
    spans.write(4, 5, start_ns=CREATED_NS + 10 * NS, duration_ns=NS // 2, outcome=1)
    page = Page(read)
    assert page.value(metrics.SPAN_BLOCKED, *labels, "evaluation") == 4
    assert page.value(metrics.SPAN_BLOCKED, *labels, "compile") == 0.5
    assert page.rank(metrics.CHECKPOINT_BLOCKED) == 2
    ring.end()
